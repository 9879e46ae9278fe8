"""Parked records: when they are due, what is delivered of them, and which were delivered already.

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

from storage.format.properties import (
    TIMER_DEL_UNIQKEY,
    TIMER_DEQUEUE_MS,
    TIMER_ENQUEUE_MS,
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
from storage.kernels.primitives.crc import bytes_equal
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
)
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import decimal_property, property_value
from storage.kernels.record_parts import write_decimal_property
from storage.kernels.timers.parking import (
    NAME_OUT_MS,
    NAME_REAL_QID,
    NAME_REAL_TOPIC,
    asked_for_ms,
)

DUE_MS: Final = 0
IDENTITY: Final = 1
RECALL_KEY: Final = 2
RECALLS: Final = 3
IS_LOST: Final = 4
ROLL_COUNT: Final = 5
SAID_COLUMNS: Final = 6

AFTER_HOSTS_SIZE: Final = AFTER_HOSTS.size
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
