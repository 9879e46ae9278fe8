"""Serving: choosing consume queue units, then proving the records they point at.

The chosen table has one int64 row a unit::

    column  name            meaning
    0       QUEUE_OFFSET    number of the unit in its queue
    1       COMMIT_OFFSET   where the unit says that its record starts
    2       RECORD_SIZE     the record's size as the unit says
    3       STATE           one of the states below

A state is CHOSEN until the record was looked at, then GOOD, FILTERED (its tag is not one asked for, only
the hash was), or DAMAGED + the stop that ``check_record`` gave. SUSPECT: the unit points nowhere, before or
after the log, or out of order to where none is. PASSED over: the log has no record for the unit.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, SIZE_IN_UNIT, TAG_CODE_IN_UNIT, UNIT_SIZE
from storage.format.extension_entry import ADDRESS_MAX
from storage.kernels.primitives.big_endian import read_i32, read_i64
from storage.kernels.primitives.crc import copy_bytes
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
from storage.kernels.primitives.prefetch import CACHE_LINE, prefetch
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.unit_order import is_in_order
from storage.kernels.unit_record import (
    CHOSEN,
    DAMAGED,
    DAMAGED_LOST,
    GOOD,
    judge,
)

QUEUE_OFFSET: Final = 0
COMMIT_OFFSET: Final = 1
RECORD_SIZE: Final = 2
STATE: Final = 3
CHOSEN_COLUMNS: Final = 4

SUSPECT: Final = 3
PASSED: Final = 5

RECORDS_AHEAD: Final = 4  # are fetched while one is looked at
_EVERYTHING: Final = (1 << 63) - 1
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


@kernel(
    results(int64, 4)(
        BYTES, int64, int64, int64, INT64S, int64, INT64S, INT64S, int64, int64, int64, int64,
        int64, int64, WRITABLE_ROWS,
    )
)  # fmt: skip
def select_units(
    units: Any,
    begin: int,
    end: int,
    first_queue_offset: int,
    tag_codes: Any,
    has_filter: int,
    log_starts: Any,
    log_ends: Any,
    stated_log_end: int,
    records_max: int,
    bytes_max: int,
    examined_max: int,
    records_before: int,
    bytes_before: int,
    chosen: Any,
) -> tuple[int, int, int, int]:
    """Choose units of ``units[begin:end]`` for a pull; the file's first is ``first_queue_offset``.

    ``tag_codes`` are the sorted 32-bit hashes asked for; ``log_starts`` and ``log_ends`` the ranges
    of the commit log that exist. Stops before a unit that a limit excludes, but not before the
    first record of the pull. Units into ranges that do not exist are chosen as DAMAGED_LOST below
    ``stated_log_end``, or as SUSPECT if they are out of order or before the first range.

    Returns ``(chosen_count, next_index, byte_count, last_event)``; the event is what was last met
    while nothing had been chosen: NOTHING, UNMATCHED or REMOVED.
    """
    count = i64(0)
    byte_count = i64(0)
    event = i64(NOTHING)
    if begin < 0 or end * UNIT_SIZE > units.size:
        return count, i64(begin), byte_count, event
    last_log_end = log_ends[log_ends.size - 1] if log_ends.size else i64(0)
    range_start = i64(0)  # of the range that the last unit pointed into
    range_end = i64(0)
    until = min(i64(end), begin + examined_max)
    index = i64(begin)
    while index < until and count < chosen.shape[0]:
        records = records_before + count
        size_max = i64(_EVERYTHING)
        if records > 0:
            size_max = bytes_max - bytes_before - byte_count
            if size_max <= 0 or records >= records_max:
                break
        position = index * UNIT_SIZE
        commit_offset = read_i64(units, position)
        size = i64(read_i32(units, position + SIZE_IN_UNIT))
        if size > size_max:
            break
        index += 1
        state = i64(CHOSEN)
        if commit_offset < 0 or size <= 0:
            state = i64(SUSPECT)
        elif has_filter:
            tag_code = read_i64(units, position + TAG_CODE_IN_UNIT)
            if tag_code > ADDRESS_MAX:
                low = ((tag_code & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
                if not among(tag_codes, low):
                    if records == 0:
                        event = i64(UNMATCHED)
                    continue
        if commit_offset < range_start or commit_offset >= range_end:
            found = range_index(log_starts, log_ends, commit_offset)
            range_start = log_starts[found] if found >= 0 else i64(0)
            range_end = log_ends[found] if found >= 0 else i64(0)
        is_in_log = range_start < range_end
        if not is_in_log and size != PREFILL_SIZE:
            # A queue begins with the first record that is left: none after it is of a removed one.
            is_removed = log_starts.size > 0 and commit_offset < log_starts[0]
            if log_ends.size == 0 or is_removed or not is_in_order(units, index - 1):
                state = i64(SUSPECT)
            elif state == CHOSEN and log_starts[0] <= commit_offset < stated_log_end:
                state = i64(DAMAGED_LOST)
            elif commit_offset >= last_log_end:
                state = i64(SUSPECT)
        is_settled = state in (SUSPECT, DAMAGED_LOST)
        if not is_settled and (not is_in_log or size == PREFILL_SIZE):
            if records == 0:
                event = i64(REMOVED)
            continue
        chosen[count, QUEUE_OFFSET] = first_queue_offset + index - 1
        chosen[count, COMMIT_OFFSET] = commit_offset
        chosen[count, RECORD_SIZE] = size
        chosen[count, STATE] = state
        if not is_settled:
            if size <= 0 or commit_offset + size > range_end:
                chosen[count, STATE] = SUSPECT
            else:
                byte_count += size
        count += 1
    return count, index, byte_count, event


@kernel(
    results(int64, 4)(
        BYTES, int64, int64, WRITABLE_ROWS, int64, int64,
        BYTES, int64, BYTES, INT64S, int64, WRITABLE_ROWS,
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
    checks_units: int,
    ranges: Any,
) -> tuple[int, int, int, int]:
    """Look at the records of ``chosen[begin:end]`` that lie in one file of the commit log.

    Every length, both checksums and the place of each record are checked; ``queue_id`` below 0 says
    that the queue may serve records of any place. With tags given a record's own tag must be one of
    them. States are set; good records are joined to ``ranges`` (begin and end in ``log``), each as
    long as records are adjacent. With ``checks_units`` each record must say the unit's queue offset, too.

    Returns ``(next_row, range_count, good_count, good_bytes)``; ``next_row < end`` when the row's
    record lies in another file or ``ranges`` is full, and with ``checks_units`` also where the row is
    SUSPECT, or has become one of the damaged states: the unit may be wrong.
    """
    range_count = i64(0)
    good_count = i64(0)
    good_bytes = i64(0)
    row = i64(begin)
    if begin < 0 or end > chosen.shape[0] or log_end - log_start > log.size:
        return row, range_count, good_count, good_bytes
    scratch = scratch_row()
    while row < end:
        ahead = row + RECORDS_AHEAD
        if ahead < end:
            expected = chosen[ahead, COMMIT_OFFSET] - log_start
            prefetch(log, expected)
            prefetch(log, expected + CACHE_LINE)
        before = chosen[row, STATE]
        if before == SUSPECT and checks_units:
            break
        if before != CHOSEN:
            row += 1
            continue
        commit_offset = chosen[row, COMMIT_OFFSET]
        size = chosen[row, RECORD_SIZE]
        if commit_offset < log_start or commit_offset >= log_end:
            break
        position = commit_offset - log_start
        state = judge(
            log, position, log_end - log_start, commit_offset, size, topic, queue_id,
            chosen[row, QUEUE_OFFSET] if checks_units else i64(-1),
            tags, tag_ends, scratch,
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
        if state >= DAMAGED and checks_units:
            break
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
