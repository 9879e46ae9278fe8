"""Consume queue units: built from rows in bulk, and looked through in bulk.

A unit is 20 bytes: i64 commit offset, i32 record size, i64 tag code, big-endian. Unit numbers
count from the start of the array.
"""

from __future__ import annotations

from typing import Any

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.record import (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.big_endian import read_i32, read_i64, write_i32, write_i64
from storage.kernels.columns import (
    COLUMN_COUNT,
    POSITION,
    QUEUE_OFFSET,
    SIZE,
    SYS_FLAG,
    TAG_CODE,
)
from storage.kernels.jit import (
    BYTES,
    INT32S,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
)


@inner
def has_unit(sys_flag: int) -> bool:
    """Whether a record with these flags is in its queue: not prepared, not rolled back."""
    transaction = sys_flag & SYS_FLAG_TRANSACTION_MASK
    return transaction != SYS_FLAG_PREPARED and transaction != SYS_FLAG_ROLLBACK


@kernel(int64(ROWS, int64, INT64S, int64, int64, WRITABLE_BYTES, WRITABLE_INT64S))
def build_units(
    rows: Any, count: int, group_of: Any, group_count: int, commit_offset_base: int,
    out_units: Any, group_start: Any,
) -> int:  # fmt: skip
    """Write the units of rows ``[0, count)``, each group's units contiguous and in row order.

    A unit's commit offset is ``commit_offset_base`` + POSITION, so the base is that of the scanned
    array's first byte. Prepared and rolled-back records get none, nor do rows with a group outside
    ``[0, group_count)``. Group g's units are ``[group_start[g], group_start[g + 1])`` of
    ``out_units`` (20 bytes each), so ``group_start`` needs ``group_count + 1`` places and
    ``out_units`` 20 x ``count`` bytes. Returns the number of units, -1 if an array is too small.
    """
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or group_of.size < count
        or group_count < 0
        or group_start.size < group_count + 1
        or out_units.size < count * UNIT_SIZE
    ):
        return i64(-1)
    for g in range(group_count + 1):
        group_start[g] = 0
    for i in range(count):
        if 0 <= group_of[i] < group_count and has_unit(rows[i, SYS_FLAG]):
            group_start[group_of[i] + 1] += 1
    for g in range(group_count):
        group_start[g + 1] += group_start[g]
    cursor = group_start[:group_count].copy()
    for i in range(count):
        group = group_of[i]
        if 0 <= group < group_count and has_unit(rows[i, SYS_FLAG]):
            position = cursor[group] * UNIT_SIZE
            cursor[group] += 1
            write_i64(out_units, position, commit_offset_base + rows[i, POSITION])
            write_i32(out_units, position + 8, rows[i, SIZE])
            write_i64(out_units, position + 12, rows[i, TAG_CODE])
    return i64(group_start[group_count])


@kernel(int64(ROWS, int64, INT64S, int64, INT64S, WRITABLE_INT64S))
def unit_queue_offsets(
    rows: Any, count: int, group_of: Any, group_count: int, group_start: Any, out: Any
) -> int:
    """The queue offset each unit of :func:`build_units` belongs at, as its record says.

    Arguments as given to and filled by :func:`build_units`; ``out[u]`` becomes the QUEUE_OFFSET of
    unit u's row. Returns the first unit whose offset is not its predecessor's + 1 within its group,
    the number of units if there is none, or -1 if an array is too small.
    """
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or group_of.size < count
        or group_count < 0
        or group_start.size < group_count + 1
        or out.size < group_start[group_count]
    ):
        return i64(-1)
    cursor = group_start[:group_count].copy()
    total = i64(group_start[group_count])
    first_gap = total
    for i in range(count):
        group = group_of[i]
        if 0 <= group < group_count and has_unit(rows[i, SYS_FLAG]):
            unit = cursor[group]
            if unit < 0 or unit >= total:
                return i64(-1)
            cursor[group] += 1
            out[unit] = rows[i, QUEUE_OFFSET]
            if unit > group_start[group] and out[unit] != out[unit - 1] + 1 and unit < first_gap:
                first_gap = unit
    return first_gap


@kernel(int64(BYTES, int64, int64, int64))
def units_end(units: Any, begin: int, count: int, visible_commit_offset: int) -> int:
    """First unit of ``[begin, begin + count)`` that cannot be read yet; ``begin + count`` if none.

    A unit can be read if its commit offset is >= 0, its size > 0 and its record ends at or before
    ``visible_commit_offset``; placeholders in front of a queue's first record (size 2^31-1 at
    offset 0) can, too. Units outside the array cannot be read.
    """
    if begin < 0:
        return i64(begin)
    end = min(begin + count, units.size // UNIT_SIZE)
    unit = i64(begin)
    while unit < end:
        commit_offset = read_i64(units, unit * UNIT_SIZE)
        size = read_i32(units, unit * UNIT_SIZE + 8)
        if commit_offset < 0 or size <= 0:
            return unit
        is_prefill = commit_offset == 0 and size == PREFILL_SIZE
        if not is_prefill and commit_offset > visible_commit_offset - size:
            return unit
        unit += 1
    return unit


@kernel(int64(BYTES, int64, int64, INT32S, WRITABLE_INT64S))
def filter_units(units: Any, begin: int, end: int, tag_hashes: Any, out: Any) -> int:
    """Numbers of the units of ``[begin, end)`` whose tag code may be one of ``tag_hashes``.

    ``tag_hashes`` must be sorted. A code that is no 32-bit hash (a delivery time, an extension
    address) may be any tag's. Fills ``out`` in order, up to its size, and returns how many.
    """
    begin = max(begin, 0)
    end = min(end, units.size // UNIT_SIZE)
    found = i64(0)
    for unit in range(begin, end):
        code = read_i64(units, unit * UNIT_SIZE + 12)
        keep = code < -0x80000000 or code > 0x7FFFFFFF
        if not keep:
            low = i64(0)
            high = i64(tag_hashes.size)
            while low < high:
                middle = (low + high) >> 1
                if tag_hashes[middle] < code:
                    low = middle + 1
                else:
                    high = middle
            keep = low < tag_hashes.size and tag_hashes[low] == code
        if keep:
            if found >= out.size:
                return found
            out[found] = unit
            found += 1
    return found


@kernel(int64(INT64S, INT64S, int64, WRITABLE_ROWS))
def coalesce(positions: Any, sizes: Any, count: int, ranges: Any) -> int:
    """Join neighbours: ``ranges[k] = (begin, end)`` covers entries that lie back to back, in order.

    ``ranges`` has two columns and room for ``count`` rows. Returns the number of ranges, -1 if an
    array is too small.
    """
    if (
        count > positions.size
        or count > sizes.size
        or ranges.shape[0] < count
        or ranges.shape[1] != 2
    ):
        return i64(-1)
    total = i64(0)
    for i in range(count):
        if total > 0 and ranges[total - 1, 1] == positions[i]:
            ranges[total - 1, 1] += sizes[i]
        else:
            ranges[total, 0] = positions[i]
            ranges[total, 1] = positions[i] + sizes[i]
            total += 1
    return total
