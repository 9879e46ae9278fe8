"""Consume queue units, built from rows in bulk.

A unit is 20 bytes: i64 commit offset, i32 record size, i64 tag code, big-endian. Unit numbers
count from the start of the array.
"""

from __future__ import annotations

from typing import Any

from storage.format.consume_entry import SIZE_IN_UNIT, TAG_CODE_IN_UNIT, UNIT_SIZE
from storage.format.record_layout import (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.batch import group_rows
from storage.kernels.columns import (
    CHECK_COMMIT_OFFSET,
    COLUMN_COUNT,
    FEATURES,
    POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    SYS_FLAG,
    TAG_CODE,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import write_i32, write_i64
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
from storage.kernels.primitives.scratch import free_longs, new_longs
from storage.kernels.scan import scan_rows

RUN_COLUMN_COUNT = 6  # of a line about a queue's run of units


@inner
def has_unit(sys_flag: int) -> bool:
    """Whether a record with these flags is in its queue: not prepared, not rolled back."""
    transaction = sys_flag & SYS_FLAG_TRANSACTION_MASK
    return transaction != SYS_FLAG_PREPARED and transaction != SYS_FLAG_ROLLBACK


@inner
def write_units(
    rows: Any, count: int, group_of: Any, group_count: int, commit_offset_base: int,
    out_units: Any, group_start: Any,
) -> int:  # fmt: skip
    """Write the units of rows with a group; return how many they are, -1 if an array is too small."""
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
    for i in range(count):
        group = group_of[i]
        if 0 <= group < group_count and has_unit(rows[i, SYS_FLAG]):
            position = group_start[group] * UNIT_SIZE
            group_start[group] += 1
            write_i64(out_units, position, commit_offset_base + rows[i, POSITION])
            write_i32(out_units, position + SIZE_IN_UNIT, rows[i, SIZE])
            write_i64(out_units, position + TAG_CODE_IN_UNIT, rows[i, TAG_CODE])
    # Each start went on to the next group's.
    for g in range(group_count, 0, -1):
        group_start[g] = group_start[g - 1]
    group_start[0] = 0
    return i64(group_start[group_count])


@inner
def name_queue_offsets(
    rows: Any, count: int, group_of: Any, group_count: int, group_start: Any, out: Any
) -> int:
    """Put the QUEUE_OFFSET of each unit's row to ``out``.

    Returns the first unit whose offset is not its predecessor's + 1 within its group, the number of units if
    there is none, or -1 if an array is too small.
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
    cursor = new_longs(group_count + 1)
    for g in range(group_count):
        cursor[g] = group_start[g]
    total = i64(group_start[group_count])
    first_gap = total
    for i in range(count):
        group = group_of[i]
        if 0 <= group < group_count and has_unit(rows[i, SYS_FLAG]):
            unit = cursor[group]
            if unit < 0 or unit >= total:
                first_gap = i64(-1)
                break
            cursor[group] += 1
            out[unit] = rows[i, QUEUE_OFFSET]
            if unit > group_start[group] and out[unit] != out[unit - 1] + 1 and unit < first_gap:
                first_gap = unit
    free_longs(cursor)
    return first_gap


@kernel(
    results(int64, 5)(
        BYTES, int64, WRITABLE_ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_BYTES, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_ROWS,
    )
)  # fmt: skip
def scan_units(
    data: Any, commit_offset: int, rows: Any, group_of: Any, first_row: Any, group_size: Any,
    out_units: Any, group_start: Any, out_queue_offsets: Any, runs: Any,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Scan all of ``data``, whose first byte is at ``commit_offset``, and build its units.

    What :func:`scan_records` with CHECK_COMMIT_OFFSET and :func:`build_units` do one after the
    other; the arrays are theirs. ``runs`` gets a line a queue, in order of appearance: position and
    length of its topic, queue id, first unit, unit after the last, and the queue offset of the first
    unit's record, -1 where it has none.

    Returns ``(row_count, next_position, stop, features, run_count)``: the first three are the
    scan's, ``features`` are those of all rows together. ``run_count`` is -1 if an array is too small.
    """
    count, position, stop = scan_rows(data, 0, data.size, commit_offset, CHECK_COMMIT_OFFSET, rows)
    features = i64(0)
    for i in range(count):
        features |= rows[i, FEATURES]
    group_count = group_rows(data, rows, count, group_of, first_row, group_size)
    if group_count > runs.shape[0] or runs.shape[1] != RUN_COLUMN_COUNT:
        group_count = i64(-1)
    total = i64(-1)
    if group_count >= 0:
        total = write_units(
            rows, count, group_of, group_count, commit_offset, out_units, group_start
        )
    if (
        total < 0
        or name_queue_offsets(rows, count, group_of, group_count, group_start, out_queue_offsets)
        < 0
    ):
        return count, position, i64(stop), features, i64(-1)
    for g in range(group_count):
        begin = group_start[g]
        row = first_row[g]
        runs[g, 0] = rows[row, TOPIC_POSITION]
        runs[g, 1] = rows[row, TOPIC_LENGTH]
        runs[g, 2] = rows[row, QUEUE_ID]
        runs[g, 3] = begin
        runs[g, 4] = group_start[g + 1]
        runs[g, 5] = out_queue_offsets[begin] if begin < group_start[g + 1] else i64(-1)
    return count, position, i64(stop), features, group_count


@kernel(
    results(int64, 2)(
        BYTES, ROWS, int64, int64, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_BYTES, WRITABLE_INT64S, WRITABLE_INT64S,
    )
)  # fmt: skip
def build_units(
    data: Any, rows: Any, count: int, commit_offset_base: int, group_of: Any, first_row: Any,
    group_size: Any, out_units: Any, group_start: Any, out_queue_offsets: Any,
) -> tuple[int, int]:  # fmt: skip
    """Group rows ``[0, count)`` by queue, build their units and name the queue offsets.

    The groups are as of :func:`group_by_queue`. Each group's units are contiguous and in row order: those of
    group g are ``[group_start[g], group_start[g + 1])`` of ``out_units`` (20 bytes each), so ``group_start``
    needs a place more than there are groups. A unit's commit offset is ``commit_offset_base`` + POSITION, so
    the base is that of the scanned array's first byte; ``out_queue_offsets`` are what its record says.
    Prepared and rolled-back records get none. Returns the numbers of groups and of units, -1 where an array
    is too small.
    """
    group_count = group_rows(data, rows, count, group_of, first_row, group_size)
    if group_count < 0:
        return i64(-1), i64(-1)
    total = write_units(
        rows, count, group_of, group_count, commit_offset_base, out_units, group_start
    )
    if total >= 0:
        name_queue_offsets(rows, count, group_of, group_count, group_start, out_queue_offsets)
    return group_count, total
