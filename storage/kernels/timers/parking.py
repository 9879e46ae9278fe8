"""Messages that ask for a delay, and what is stored of them until they are due: a broker's form.

A delay level goes to the schedule topic, queue level - 1; a time to the timer topic, queue 0. Both get
REAL_TOPIC and REAL_QID, a time TIMER_OUT_MS too: the whole second before it. A level above the highest
becomes the highest. The time asked for is TIMER_DELAY_SEC or else TIMER_DELAY_MS after ``now_ms``, or else
TIMER_DELIVER_MS; one that is not after ``now_ms`` delays nothing.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format import timer_files
from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.format.names import TIMER_TOPIC
from storage.format.properties import (
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_SEC,
    TIMER_OUT_MS,
)
from storage.format.record_layout import AFTER_HOSTS
from storage.format.timer_files import SECOND_MS
from storage.kernels.columns import (
    BODY_POSITION,
    COLUMN_COUNT,
    FEATURES,
    HAS_DELAY,
    HAS_TIMER,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.copies import (
    BLOCK_SIZE_MAX,
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
from storage.kernels.primitives.big_endian import read_i32
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import (
    ROWS,
    WRITABLE_BYTES,
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
