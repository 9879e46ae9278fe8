"""Looking up single records: by an index's entries for a key, by units, and one at a given place."""

from __future__ import annotations

from typing import Any, Final

from storage.format.properties import KEY_SEPARATOR
from storage.format.record_layout import COMMIT_OFFSET_POSITION, SYS_FLAG_POSITION
from storage.kernels.columns import (
    CHECK_ALL,
    COLUMN_COUNT,
    KEYS_LENGTH,
    KEYS_POSITION,
    QUEUE_OFFSET,
    SIZE,
    STOP_COMMIT_OFFSET,
    STOP_END,
    STOP_SIZE,
    STOP_TRUNCATED,
    STOP_ZERO,
    STORE_TIMESTAMP,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64, read_u8
from storage.kernels.primitives.crc import bytes_equal
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    results,
)
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.scan import check_record
from storage.kernels.unit_record import DAMAGED, GOOD, is_in_light_queue, is_of_queue

_SPACE: Final = ord(KEY_SEPARATOR)
KEY_ABSENT: Final = 3  # a state beside GOOD: the record there does not carry the key


@inner
def has_token(data: Any, position: int, length: int, token: Any) -> bool:
    """Whether one of the space-separated tokens of a range is ``token``."""
    end = position + length
    begin = position
    while begin < end:
        at = begin
        while at < end and read_u8(data, at) != _SPACE:
            at += 1
        if at - begin == token.size and bytes_equal(data, begin, token, 0, token.size):
            return True
        begin = at + 1
    return False


@inner
def is_damage(data: Any, position: int, end: int, commit_offset: int, stop: int) -> bool:
    """Whether what stopped a check is a record of this very place that went bad."""
    return (
        stop != STOP_COMMIT_OFFSET
        and end - position >= SYS_FLAG_POSITION
        and read_i64(data, position + COMMIT_OFFSET_POSITION) == commit_offset
    )


@kernel(
    int64(
        BYTES, int64, int64, INT64S, BYTES, BYTES, int64, int64, int64,
        WRITABLE_INT64S, WRITABLE_INT64S,
    )
)  # fmt: skip
def match_keys(
    log: Any,
    log_start: int,
    log_end: int,
    commit_offsets: Any,
    topic: Any,
    key: Any,
    is_unique: int,
    begin_timestamp_ms: int,
    end_timestamp_ms: int,
    states: Any,
    sizes: Any,
) -> int:
    """Tell for each commit offset in one log file whether the record there carries the key.

    ``states`` get GOOD, KEY_ABSENT (also: another topic, stored outside the times, no record), or
    DAMAGED + stop; rows outside the file are left alone. Returns how many are GOOD.
    """
    good_count = i64(0)
    if log_end - log_start > log.size or states.size < commit_offsets.size:
        return good_count
    scratch = scratch_row()
    for i in range(commit_offsets.size):
        commit_offset = commit_offsets[i]
        if commit_offset < log_start or commit_offset >= log_end:
            continue
        position = commit_offset - log_start
        end = log_end - log_start
        stop = check_record(log, position, end, commit_offset, CHECK_ALL, scratch, 0)
        sizes[i] = i64(0)
        if stop != STOP_END or position == end:
            # What was never a record, or moved, is a stale entry; bad content is damage, and so are zeros.
            states[i] = KEY_ABSENT
            if stop == STOP_ZERO or is_damage(log, position, end, commit_offset, stop):
                states[i] = DAMAGED + stop
                sizes[i] = read_i32(log, position)
            continue
        sizes[i] = scratch[0, SIZE]
        matched = scratch[0, TOPIC_LENGTH] == topic.size and bytes_equal(
            log, scratch[0, TOPIC_POSITION], topic, 0, topic.size
        )
        if matched:
            matched = begin_timestamp_ms <= scratch[0, STORE_TIMESTAMP] <= end_timestamp_ms
        if matched:
            if is_unique:
                matched = scratch[0, UNIQ_KEY_LENGTH] == key.size and bytes_equal(
                    log, scratch[0, UNIQ_KEY_POSITION], key, 0, key.size
                )
            else:
                matched = has_token(log, scratch[0, KEYS_POSITION], scratch[0, KEYS_LENGTH], key)
        states[i] = GOOD if matched else KEY_ABSENT
        good_count += matched
    return good_count


@kernel(results(int64, 2)(BYTES, int64, int64, int64))
def check_one(data: Any, position: int, end: int, commit_offset: int) -> tuple[int, int]:
    """Check the record at ``position``: ``(size, stop)``; size 0 if nothing of this place is there.

    A record that stands at its own commit offset and is bad has its size and the stop.
    """
    if position < 0 or end > data.size or position >= end:
        return i64(0), i64(STOP_TRUNCATED)
    scratch = scratch_row()
    stop = i64(check_record(data, position, end, commit_offset, CHECK_ALL, scratch, 0))
    if stop == STOP_END:
        return scratch[0, SIZE], stop
    if is_damage(data, position, end, commit_offset, stop):
        return i64(read_i32(data, position)), stop
    return i64(0), stop


@kernel(
    int64(
        BYTES, int64, INT64S, INT64S, INT64S, BYTES, int64, int64, WRITABLE_ROWS, WRITABLE_INT64S
    )
)  # fmt: skip
def check_units(
    data: Any, data_offset: int, commit_offsets: Any, sizes: Any, queue_offsets: Any, topic: Any,
    queue_id: int, checks: int, rows: Any, stops: Any,
) -> int:  # fmt: skip
    """Check the record that each unit points to and fill its row.

    ``data_offset`` is the commit offset of ``data[0]``. ``stops[i]`` becomes END for a good record of
    the unit's size, queue and queue offset; ``rows[i]`` is whole only then. ``queue_id`` is below 0 for a light
    queue; with a queue offset below 0 any record is the unit's. Returns the number of good ones, -1 if an
    array is too small.
    """
    count = commit_offsets.size
    if sizes.size < count or queue_offsets.size < count or stops.size < count:
        return i64(-1)
    if rows.shape[0] < count or rows.shape[1] != COLUMN_COUNT:
        return i64(-1)
    good = i64(0)
    row = scratch_row()
    for i in range(count):
        position = commit_offsets[i] - data_offset
        if not 0 <= position <= data.size - sizes[i] or sizes[i] <= 0:
            stops[i] = STOP_TRUNCATED
            continue
        stop = check_record(data, position, position + sizes[i], commit_offsets[i], checks, row, 0)
        if stop == STOP_END and row[0, SIZE] != sizes[i]:
            stop = i64(STOP_SIZE)
        if stop == STOP_END and queue_offsets[i] >= 0:
            if queue_id >= 0:
                is_own = row[0, QUEUE_OFFSET] == queue_offsets[i] and is_of_queue(
                    data, row, topic, queue_id
                )
            else:
                is_own = is_in_light_queue(data, row, topic, queue_offsets[i])
            if not is_own:
                stop = i64(STOP_COMMIT_OFFSET)  # the unit's record is elsewhere
        stops[i] = stop
        if stop == STOP_END:
            for column in range(COLUMN_COUNT):
                rows[i, column] = row[0, column]
            good += 1
    return good
