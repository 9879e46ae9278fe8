"""Delayed messages: what is stored of them until they are due, when that is, and what is delivered.

A delay level goes to the schedule topic, queue level - 1; a time to the timer topic, queue 0. Both get
REAL_TOPIC and REAL_QID, a time TIMER_OUT_MS too: the whole second before it. A level above the highest
becomes the highest. The time asked for is TIMER_DELAY_SEC or else TIMER_DELAY_MS after ``now_ms``, or else
TIMER_DELIVER_MS; one that is not after ``now_ms`` delays nothing.

A line of what ``plan_delivery`` says of a parked record::

    column  name           meaning
    0       DUE_MS         when it is due, to the millisecond
    1       IDENTITY       the same of a parked record and of its delivered copy, else of hardly any two
    2       RECALL_KEY     of its topic and unique key, as a recall names it; 0 without a unique key
    3       RECALLS        the RECALL_KEY of the message that this record recalls; 0: it recalls none
    4       IS_LOST        1: it does not say where it belongs
    5       ROLL_COUNT     how often a broker rolled it on: wrote it again before it was due
"""

from __future__ import annotations

from typing import Any, Final

from storage.format import timer_files
from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_SEC,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
)
from storage.format.record_layout import AFTER_HOSTS, BODY_CRC_POSITION, BORN_TIMESTAMP_POSITION
from storage.format.timer_files import SECOND_MS
from storage.kernels.columns import (
    BODY_POSITION,
    COLUMN_COUNT,
    FEATURES,
    HAS_DELAY,
    HAS_TIMER,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    STORE_TIMESTAMP,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.kernels.copies import (
    BLOCK_SIZE_MAX,
    COPY_TOPIC_SIZE_MAX,
    PAIRS_AT,
    PAIRS_SIZE,
    TARGET_COLUMNS,
    TARGET_FLAG,
    TARGET_QUEUE,
    TARGET_TIMES,
    TOPIC_AT,
    TOPIC_SIZE,
    has_row,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64, read_u8
from storage.kernels.primitives.crc import bytes_equal, copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    results,
)
from storage.kernels.primitives.text import ABSENT, text_bytes
from storage.kernels.properties import (
    NAME_DELAY,
    NAME_DELAY_MS,
    NAME_DELIVER_MS,
    decimal_property,
    property_value,
)
from storage.kernels.record_parts import write_decimal_property, write_pair

AFTER_HOSTS_SIZE: Final = AFTER_HOSTS.size
NO_PROBLEM: Final = 0
TOO_FAR: Final = 1
LEVEL_AND_TIME: Final = 2
NO_ROOM: Final = 3

PAIRS_SIZE_MAX: Final = 384  # of the properties that a parked record gets

_LEVELS: Final = len(DELAY_LEVELS_MS)
_SCHEDULE: Final = text_bytes(SCHEDULE_TOPIC)
_TIMERS: Final = text_bytes(TIMER_TOPIC)
TOPICS_SIZE: Final = int(_SCHEDULE.size + _TIMERS.size)


NAME_DELAY_SEC: Final = text_bytes(TIMER_DELAY_SEC)
NAME_OUT_MS: Final = text_bytes(TIMER_OUT_MS)
NAME_REAL_TOPIC: Final = text_bytes(REAL_TOPIC)
NAME_REAL_QID: Final = text_bytes(REAL_QID)


out_ms = inner(timer_files.out_ms)


@inner
def asked_for_ms(data: Any, position: int, length: int, from_ms: int) -> int:
    """When a block asks for its message to be delivered, relative times from ``from_ms`` on; ABSENT: no time."""
    seconds = decimal_property(data, position, length, NAME_DELAY_SEC)
    if seconds >= 0:
        return i64(from_ms + seconds * SECOND_MS)
    milliseconds = decimal_property(data, position, length, NAME_DELAY_MS)
    if milliseconds >= 0:
        return i64(from_ms + milliseconds)
    return decimal_property(data, position, length, NAME_DELIVER_MS)


@kernel(
    results(int64, 4)(WRITABLE_BYTES, ROWS, int64, int64, int64, int64, WRITABLE_ROWS)
)  # fmt: skip
def plan_parking(
    text: Any, rows: Any, count: int, now_ms: int, delay_ms_max: int, records_end: int, targets: Any
) -> tuple[int, int, int, int]:
    """Fill ``targets`` for copies of rows ``[0, count)``: those that are delayed go to their system topic.

    ``text`` begins with the records, up to ``records_end``; after them it needs room for ``TOPICS_SIZE`` and
    ``PAIRS_SIZE_MAX`` a row. Copies get their properties from there, and need DELAY to be left out. Returns
    ``(parked_count, row, problem, text_end)``: with a problem, that of ``row``, nothing else counts.
    """
    zero = i64(0)
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or count > targets.shape[0]
        or targets.shape[1] != TARGET_COLUMNS
        or records_end + TOPICS_SIZE + count * PAIRS_SIZE_MAX > text.size
    ):
        return zero, zero, i64(NO_ROOM), zero
    copy_bytes(text, records_end, _SCHEDULE, 0, _SCHEDULE.size)
    copy_bytes(text, records_end + _SCHEDULE.size, _TIMERS, 0, _TIMERS.size)
    at = i64(records_end + TOPICS_SIZE)
    parked = zero
    for i in range(count):
        if not has_row(text, rows, i):
            return zero, i64(i), i64(NO_ROOM), zero
        begin = rows[i, PROPERTIES_POSITION]
        length = rows[i, PROPERTIES_LENGTH]
        features = rows[i, FEATURES]
        level = zero
        deliver_ms = i64(ABSENT)
        if features & HAS_DELAY:
            level = min(max(decimal_property(text, begin, length, NAME_DELAY), zero), _LEVELS)
        if features & HAS_TIMER:
            deliver_ms = asked_for_ms(text, begin, length, now_ms)
        if level > 0 and deliver_ms >= 0:
            return zero, i64(i), i64(LEVEL_AND_TIME), zero
        if deliver_ms - now_ms > delay_ms_max:
            return zero, i64(i), i64(TOO_FAR), zero
        targets[i, TOPIC_AT] = rows[i, TOPIC_POSITION]
        targets[i, TOPIC_SIZE] = rows[i, TOPIC_LENGTH]
        targets[i, TARGET_QUEUE] = rows[i, QUEUE_ID]
        targets[i, TARGET_FLAG] = rows[i, SYS_FLAG]
        targets[i, TARGET_TIMES] = read_i32(text, rows[i, BODY_POSITION] - AFTER_HOSTS_SIZE)
        targets[i, PAIRS_AT] = at
        if features & HAS_DELAY:
            at = write_decimal_property(text, at, NAME_DELAY, level)
        is_timer = deliver_ms > now_ms
        if is_timer:
            at = write_decimal_property(text, at, NAME_OUT_MS, out_ms(deliver_ms))
        if is_timer or level > 0:
            topic = rows[i, TOPIC_POSITION]
            at = write_pair(
                text, at, NAME_REAL_TOPIC, i64(0), i64(NAME_REAL_TOPIC.size),
                text, topic, topic + rows[i, TOPIC_LENGTH],
            )  # fmt: skip
            at = write_decimal_property(text, at, NAME_REAL_QID, rows[i, QUEUE_ID])
            parked += 1
        targets[i, PAIRS_SIZE] = at - targets[i, PAIRS_AT]
        if length + targets[i, PAIRS_SIZE] > BLOCK_SIZE_MAX:
            return zero, i64(i), i64(NO_ROOM), zero
        if level > 0:
            targets[i, TOPIC_AT] = records_end
            targets[i, TOPIC_SIZE] = _SCHEDULE.size
            targets[i, TARGET_QUEUE] = level - 1
        elif is_timer:
            targets[i, TOPIC_AT] = records_end + _SCHEDULE.size
            targets[i, TOPIC_SIZE] = _TIMERS.size
            targets[i, TARGET_QUEUE] = 0
    return parked, i64(-1), i64(NO_PROBLEM), at


DUE_MS: Final = 0
IDENTITY: Final = 1
RECALL_KEY: Final = 2
RECALLS: Final = 3
IS_LOST: Final = 4
ROLL_COUNT: Final = 5
SAID_COLUMNS: Final = 6

DELIVERY_PAIRS_MAX: Final = 96  # bytes of the properties that a delivered copy gets
_PRIME: Final = 0x100_0000_01B3
_BASIS: Final = 0xCBF2_9CE4_8422_2325 - (1 << 64)
_PLUS: Final = 0x2B
_QUEUE_MAX: Final = (1 << 31) - 1
NAME_ENQUEUE_MS: Final = text_bytes(TIMER_ENQUEUE_MS)
NAME_DEQUEUE_MS: Final = text_bytes(TIMER_DEQUEUE_MS)
NAME_DEL_UNIQKEY: Final = text_bytes(TIMER_DEL_UNIQKEY)
NAME_ROLL_TIMES: Final = text_bytes(TIMER_ROLL_TIMES)


@inner
def fold(hashed: int, value: int) -> int:
    """One step of FNV-1a, over a whole word."""
    return i64((hashed ^ value) * _PRIME)


@inner
def fold_bytes(hashed: int, data: Any, position: int, length: int) -> int:
    """Go on with FNV-1a over bytes."""
    for i in range(position, position + length):
        hashed = fold(hashed, read_u8(data, i))
    return i64(hashed)


@inner
def not_zero(hashed: int) -> int:
    """A hash that is never 0, which stands for none."""
    return i64(1) if hashed == 0 else i64(hashed)


@inner
def identity_of(data: Any, rows: Any, row: int, topic: int, topic_size: int, queue_id: int) -> int:
    """What a parked record and its delivered copy have in common."""
    position = rows[row, POSITION]
    hashed = fold_bytes(i64(_BASIS), data, topic, topic_size)
    hashed = fold(hashed, queue_id)
    hashed = fold_bytes(hashed, data, rows[row, UNIQ_KEY_POSITION], rows[row, UNIQ_KEY_LENGTH])
    hashed = fold(hashed, read_i64(data, position + BORN_TIMESTAMP_POSITION))
    return not_zero(fold(hashed, read_i32(data, position + BODY_CRC_POSITION)))


@inner
def due_ms_of(data: Any, rows: Any, row: int) -> int:
    """When a record of the timer topic is due.

    The time that it asks for counts within the second of its TIMER_OUT_MS, else the end of that: a delay from the
    store time on may end in the next one, and does after a broker has rolled the record on.
    """
    begin = rows[row, PROPERTIES_POSITION]
    length = rows[row, PROPERTIES_LENGTH]
    asked = asked_for_ms(data, begin, length, rows[row, STORE_TIMESTAMP])
    out = decimal_property(data, begin, length, NAME_OUT_MS)
    if out < 0:
        return i64(max(asked, rows[row, STORE_TIMESTAMP]))
    return i64(asked) if out < asked <= out + SECOND_MS else i64(out + SECOND_MS)


@kernel(int64(WRITABLE_BYTES, ROWS, int64, int64, int64, int64, WRITABLE_ROWS, WRITABLE_ROWS))
def plan_delivery(
    text: Any, rows: Any, count: int, now_ms: int, is_timer: int, records_end: int, targets: Any,
    said: Any,
) -> int:  # fmt: skip
    """Fill ``targets`` for the delivered copies of rows ``[0, count)``, and ``said`` (see the module).

    ``text`` begins with the records, up to ``records_end``; after them it needs ``DELIVERY_PAIRS_MAX`` a row.
    With ``is_timer`` copies get TIMER_ENQUEUE_MS and TIMER_DEQUEUE_MS, and need those of the record to be left
    out; without it DUE_MS and ROLL_COUNT are not known. Returns the end of what was written, -1 if an argument does not fit.
    """
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or count > targets.shape[0]
        or targets.shape[1] != TARGET_COLUMNS
        or count > said.shape[0]
        or said.shape[1] != SAID_COLUMNS
        or records_end + count * DELIVERY_PAIRS_MAX > text.size
    ):
        return i64(-1)
    at = i64(records_end)
    for i in range(count):
        if not has_row(text, rows, i):
            return i64(-1)
        begin = rows[i, PROPERTIES_POSITION]
        length = rows[i, PROPERTIES_LENGTH]
        topic, topic_size = property_value(text, begin, length, NAME_REAL_TOPIC)
        queue_id = decimal_property(text, begin, length, NAME_REAL_QID)
        is_lost = (
            topic < 0 or topic_size > COPY_TOPIC_SIZE_MAX or queue_id < 0 or queue_id > _QUEUE_MAX
        )
        if is_lost:
            topic = rows[i, TOPIC_POSITION]
            topic_size = rows[i, TOPIC_LENGTH]
            queue_id = i64(0)
        said[i, IS_LOST] = is_lost
        said[i, IDENTITY] = identity_of(text, rows, i, topic, topic_size, queue_id)
        said[i, RECALL_KEY] = 0
        said[i, RECALLS] = 0
        key_length = rows[i, UNIQ_KEY_LENGTH]
        if key_length > 0:
            hashed = fold(fold_bytes(i64(_BASIS), text, topic, topic_size), i64(_PLUS))
            hashed = fold_bytes(hashed, text, rows[i, UNIQ_KEY_POSITION], key_length)
            said[i, RECALL_KEY] = not_zero(hashed)
        targets[i, TOPIC_AT] = topic
        targets[i, TOPIC_SIZE] = topic_size
        targets[i, TARGET_QUEUE] = queue_id
        targets[i, TARGET_FLAG] = rows[i, SYS_FLAG]
        targets[i, TARGET_TIMES] = read_i32(text, rows[i, BODY_POSITION] - AFTER_HOSTS_SIZE)
        targets[i, PAIRS_AT] = at
        said[i, DUE_MS] = said[i, ROLL_COUNT] = 0
        if is_timer:
            recalls, recalls_size = property_value(text, begin, length, NAME_DEL_UNIQKEY)
            if recalls >= 0:
                said[i, RECALLS] = not_zero(fold_bytes(i64(_BASIS), text, recalls, recalls_size))
            said[i, DUE_MS] = due_ms_of(text, rows, i)
            rolls = decimal_property(text, begin, length, NAME_ROLL_TIMES)
            said[i, ROLL_COUNT] = max(rolls, i64(0))
            enqueued = rows[i, STORE_TIMESTAMP] // SECOND_MS * SECOND_MS
            at = write_decimal_property(text, at, NAME_ENQUEUE_MS, max(enqueued, i64(0)))
            at = write_decimal_property(text, at, NAME_DEQUEUE_MS, now_ms)
        targets[i, PAIRS_SIZE] = at - targets[i, PAIRS_AT]
    return at


@kernel(int64(BYTES, ROWS, int64, WRITABLE_INT64S))
def delivered_identities(data: Any, rows: Any, count: int, identities: Any) -> int:
    """Fill ``identities`` with those of the delivered copies among rows ``[0, count)``; return how many.

    A copy stands in the topic that its REAL_TOPIC names, which no client can write.
    """
    if count > rows.shape[0] or rows.shape[1] != COLUMN_COUNT or count > identities.size:
        return i64(-1)
    found = i64(0)
    for i in range(count):
        if not rows[i, FEATURES] & (HAS_DELAY | HAS_TIMER) or not has_row(data, rows, i):
            continue
        topic, topic_size = property_value(
            data, rows[i, PROPERTIES_POSITION], rows[i, PROPERTIES_LENGTH], NAME_REAL_TOPIC
        )
        if (
            topic >= 0
            and topic_size == rows[i, TOPIC_LENGTH]
            and bytes_equal(data, topic, data, rows[i, TOPIC_POSITION], topic_size)
        ):
            identities[found] = identity_of(data, rows, i, topic, topic_size, rows[i, QUEUE_ID])
            found += 1
    return found
