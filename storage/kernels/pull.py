"""Serving: choosing consume queue units, then proving the records they point at.

The chosen table has one int64 row a unit::

    column  name            meaning
    0       QUEUE_OFFSET    number of the unit in its queue
    1       COMMIT_OFFSET   where the unit says that its record starts
    2       RECORD_SIZE     the record's size as the unit says
    3       STATE           one of the states below

A state is CHOSEN until the record was looked at, then GOOD, FILTERED (its tag is not one asked for,
only the hash was), or DAMAGED + the stop that ``check_record`` gave.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, SIZE_IN_UNIT, TAG_CODE_IN_UNIT, UNIT_SIZE
from storage.format.extension_entry import ADDRESS_MAX
from storage.format.properties import NAME_END, PROPERTY_END
from storage.kernels.columns import (
    CHECK_ALL,
    FEATURES,
    HAS_TAGS,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    SIZE,
    STOP_END,
    STOP_TRUNCATED,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64
from storage.kernels.primitives.crc import bytes_equal, copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    results,
)
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.properties import NAME_TAGS, matches
from storage.kernels.scan import check_record

QUEUE_OFFSET: Final = 0
COMMIT_OFFSET: Final = 1
RECORD_SIZE: Final = 2
STATE: Final = 3
CHOSEN_COLUMNS: Final = 4

CHOSEN: Final = 0
GOOD: Final = 1
FILTERED: Final = 2
DAMAGED: Final = 100
DAMAGED_PLACE: Final = DAMAGED + 98  # a record of another topic or queue
DAMAGED_UNIT: Final = DAMAGED + 99  # the unit cannot be pointing at a record

RECORDS_MAX: Final = 0
BYTES_MAX: Final = 1
EXAMINED_MAX: Final = 2
RECORDS_BEFORE: Final = 3
BYTES_BEFORE: Final = 4
SKIPS_LOST_FILES: Final = 5
LIMIT_COUNT: Final = 6

NOTHING: Final = 0
UNMATCHED: Final = 1
REMOVED: Final = 2


def new_chosen(capacity: int) -> npt.NDArray[np.int64]:
    """An empty chosen table for up to ``capacity`` units."""
    return np.empty((capacity, CHOSEN_COLUMNS), np.int64)


@inner
def among(sorted_values: Any, value: int) -> bool:
    """Whether ``value`` is in a sorted array."""
    low = i64(0)
    high = i64(sorted_values.size)
    while low < high:
        middle = (low + high) >> 1
        if sorted_values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return bool(low < sorted_values.size and sorted_values[low] == value)


@inner
def range_index(starts: Any, ends: Any, offset: int) -> int:
    """Index of the half-open range that holds ``offset``, -1 if none does; starts are sorted."""
    low = i64(0)
    high = i64(starts.size)
    while low < high:
        middle = (low + high) >> 1
        if starts[middle] <= offset:
            low = middle + 1
        else:
            high = middle
    if low > 0 and offset < ends[low - 1]:
        return low - 1
    return i64(-1)


@kernel(int64(BYTES, int64, int64, int64))
def units_end(units: Any, begin: int, end: int, visible_commit_offset: int) -> int:
    """Index of the first unit of ``units[begin:end]`` that is not there yet, ``end`` if all are.

    A unit is there when it points at something (offset not negative, size above 0) that ends at or
    before ``visible_commit_offset``; pre-fill units count as there.
    """
    if begin < 0 or end * UNIT_SIZE > units.size:
        return i64(begin)
    index = i64(begin)
    while index < end:
        position = index * UNIT_SIZE
        commit_offset = read_i64(units, position)
        size = read_i32(units, position + SIZE_IN_UNIT)
        if commit_offset < 0 or size <= 0:
            break
        if commit_offset >= visible_commit_offset and size != PREFILL_SIZE:
            break
        if size != PREFILL_SIZE and commit_offset + size > visible_commit_offset:
            break
        index += 1
    return index


@kernel(
    results(int64, 4)(
        BYTES, int64, int64, int64, INT64S, int64, INT64S, INT64S, INT64S, WRITABLE_ROWS
    )
)
def select_units(
    units: Any,
    begin: int,
    end: int,
    first_queue_offset: int,
    tag_codes: Any,
    has_filter: int,
    log_starts: Any,
    log_ends: Any,
    limits: Any,
    chosen: Any,
) -> tuple[int, int, int, int]:
    """Choose units of ``units[begin:end]`` for a pull; the file's first is ``first_queue_offset``.

    ``tag_codes`` are the sorted 32-bit hashes asked for; ``log_starts`` and ``log_ends`` the ranges
    of the commit log that exist. Stops before a unit that a limit excludes, but not before the
    first record of the pull. Units into ranges that do not exist are stepped over, with everything
    up to the next range.

    Returns ``(chosen_count, next_index, byte_count, last_event)``; the event is what was last met
    while nothing had been chosen: NOTHING, UNMATCHED or REMOVED.
    """
    count = i64(0)
    byte_count = i64(0)
    event = i64(NOTHING)
    if begin < 0 or end * UNIT_SIZE > units.size or limits.size < LIMIT_COUNT:
        return count, i64(begin), byte_count, event
    resume_at = i64(-(1 << 62))
    examined_end = begin + limits[EXAMINED_MAX]
    index = i64(begin)
    while index < end and index < examined_end and count < chosen.shape[0]:
        position = index * UNIT_SIZE
        commit_offset = read_i64(units, position)
        size = i64(read_i32(units, position + SIZE_IN_UNIT))
        records = limits[RECORDS_BEFORE] + count
        total = limits[BYTES_BEFORE] + byte_count
        if records > 0:
            if total >= limits[BYTES_MAX] or records >= limits[RECORDS_MAX]:
                break
            if total + size > limits[BYTES_MAX]:
                break
        index += 1
        if commit_offset < resume_at:
            continue
        resume_at = i64(-(1 << 62))
        if has_filter:
            tag_code = read_i64(units, position + TAG_CODE_IN_UNIT)
            if tag_code > ADDRESS_MAX:
                low = ((tag_code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
                if not among(tag_codes, low):
                    if records == 0:
                        event = i64(UNMATCHED)
                    continue
        log = range_index(log_starts, log_ends, commit_offset)
        if log < 0 or size == PREFILL_SIZE:
            if records == 0:
                event = i64(REMOVED)
            if limits[SKIPS_LOST_FILES]:
                resume_at = commit_offset
                for start in log_starts:
                    if start > commit_offset:
                        resume_at = start
                        break
            continue
        chosen[count, QUEUE_OFFSET] = first_queue_offset + index - 1
        chosen[count, COMMIT_OFFSET] = commit_offset
        chosen[count, RECORD_SIZE] = size
        chosen[count, STATE] = CHOSEN
        if size <= 0 or commit_offset + size > log_ends[log]:
            chosen[count, STATE] = DAMAGED_UNIT
        else:
            byte_count += size
        count += 1
    return count, index, byte_count, event


@inner
def property_value(data: Any, position: int, length: int, name: Any) -> tuple[int, int]:
    """Position and length of the value of the last property called ``name``; (-1, 0) if none is."""
    found = i64(-1)
    found_length = i64(0)
    end = position + length
    begin = position
    while begin < end:
        separator = i64(-1)
        at = begin
        while at < end and data[np.uintp(at)] != PROPERTY_END:
            if separator < 0 and data[np.uintp(at)] == NAME_END:
                separator = at
            at += 1
        if separator - begin == name.size and separator + 1 < at and matches(data, begin, name):
            found = separator + 1
            found_length = at - found
        begin = at + 1
    return found, found_length


@inner
def is_one_of(data: Any, position: int, length: int, texts: Any, text_ends: Any) -> bool:
    """Whether the bytes equal one of the texts, which stand end to end in ``texts``."""
    begin = i64(0)
    for i in range(text_ends.size):
        if text_ends[i] - begin == length and bytes_equal(data, position, texts, begin, length):
            return True
        begin = text_ends[i]
    return False


@inner
def is_of_queue(log: Any, row: Any, topic: Any, queue_id: int) -> bool:
    """Whether the record of the one row belongs to the queue."""
    return (
        row[0, QUEUE_ID] == queue_id
        and row[0, TOPIC_LENGTH] == topic.size
        and bytes_equal(log, row[0, TOPIC_POSITION], topic, 0, topic.size)
    )


@inner
def has_one_of(log: Any, row: Any, tags: Any, tag_ends: Any) -> bool:
    """Whether the record of the one row has a tag, and one of these."""
    if row[0, FEATURES] & HAS_TAGS == 0:
        return False
    at, length = property_value(
        log, row[0, PROPERTIES_POSITION], row[0, PROPERTIES_LENGTH], NAME_TAGS
    )
    return is_one_of(log, at, length, tags, tag_ends)


@inner
def judge(
    log: Any, position: int, end: int, commit_offset: int, size: int, topic: Any, queue_id: int,
    tags: Any, tag_ends: Any, row: Any,
) -> int:  # fmt: skip
    """The state of what should be a record of ``size`` bytes in ``log[position:end]``."""
    if size > end - position:
        return i64(DAMAGED_UNIT)
    stop = i64(check_record(log, position, position + size, commit_offset, CHECK_ALL, row, 0))
    if stop == STOP_END and row[0, SIZE] != size:
        stop = i64(STOP_TRUNCATED)
    if stop != STOP_END:
        return DAMAGED + stop
    if queue_id >= 0 and not is_of_queue(log, row, topic, queue_id):
        return i64(DAMAGED_PLACE)
    if tag_ends.size > 0 and not has_one_of(log, row, tags, tag_ends):
        return i64(FILTERED)
    return i64(GOOD)


@kernel(
    results(int64, 4)(
        BYTES, int64, int64, WRITABLE_ROWS, int64, int64,
        BYTES, int64, BYTES, INT64S, WRITABLE_ROWS,
    )
)  # fmt: skip
def verify_chosen(
    log: Any,
    log_start: int,
    log_end: int,
    chosen: Any,
    begin: int,
    end: int,
    topic: Any,
    queue_id: int,
    tags: Any,
    tag_ends: Any,
    ranges: Any,
) -> tuple[int, int, int, int]:
    """Look at the records of ``chosen[begin:end]`` that lie in one file of the commit log.

    Every length, both checksums and the place of each record are checked; ``queue_id`` below 0 says
    that the queue may serve records of any place. With tags given a record's own tag must be one of
    them. States are set; good records are joined to ``ranges`` (begin and end in ``log``), each as
    long as records are adjacent.

    Returns ``(next_row, range_count, good_count, good_bytes)``; ``next_row < end`` when the row's
    record lies in another file or ``ranges`` is full.
    """
    range_count = i64(0)
    good_count = i64(0)
    good_bytes = i64(0)
    row = i64(begin)
    if begin < 0 or end > chosen.shape[0] or log_end - log_start > log.size:
        return row, range_count, good_count, good_bytes
    scratch = scratch_row()
    while row < end:
        if chosen[row, STATE] != CHOSEN:
            row += 1
            continue
        commit_offset = chosen[row, COMMIT_OFFSET]
        size = chosen[row, RECORD_SIZE]
        if commit_offset < log_start or commit_offset >= log_end:
            break
        position = commit_offset - log_start
        state = judge(
            log, position, log_end - log_start, commit_offset, size, topic, queue_id, tags,
            tag_ends, scratch,
        )  # fmt: skip
        if state == GOOD:
            if range_count > 0 and ranges[range_count - 1, 1] == position:
                ranges[range_count - 1, 1] = position + size
            elif range_count < ranges.shape[0]:
                ranges[range_count, 0] = position
                ranges[range_count, 1] = position + size
                range_count += 1
            else:
                break
            good_count += 1
            good_bytes += size
        chosen[row, STATE] = state
        row += 1
    return row, range_count, good_count, good_bytes


@kernel(int64(WRITABLE_BYTES, int64, BYTES, ROWS, int64))
def gather_ranges(dst: Any, dst_position: int, src: Any, ranges: Any, range_count: int) -> int:
    """Copy ranges of ``src`` one after the other to ``dst``; return the position after the last."""
    for i in range(range_count):
        begin = ranges[i, 0]
        size = ranges[i, 1] - begin
        if begin < 0 or size < 0 or begin > src.size - size or dst_position > dst.size - size:
            return i64(-1)
        copy_bytes(dst, dst_position, src, begin, size)
        dst_position += size
    return i64(dst_position)
