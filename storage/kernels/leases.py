"""Loops over leases: receipt handles sealed and opened, the records of a pull, runs of messages as bitmaps.

64 adjacent queue offsets are a block, and some messages of it a mask.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.properties import SHARDING_KEY
from storage.format.receipt_handle import (
    ATTEMPT_MAX,
    ATTEMPT_POSITION,
    CHECK_POSITION,
    KIND_POSITION,
    LEASED_AT_POSITION,
    PACKED_SIZE,
    QUEUE_ID_POSITION,
    VERSION,
)
from storage.format.receipt_handle import QUEUE_OFFSET_POSITION as OFFSET_IN_HANDLE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.columns import PROPERTIES_LENGTH, PROPERTIES_POSITION, STOP_END
from storage.kernels.primitives.big_endian import (
    read_i16,
    read_i32,
    read_i64,
    read_u8,
    write_i16,
    write_i32,
    write_i64,
)
from storage.kernels.primitives.crc import masked_crc
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
    u8,
    uintp,
)
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import property_value
from storage.kernels.scan import frame_record

_u64: Any = np.uint64


@inner
def text_hash(data: Any, position: int, size: int) -> int:
    """FNV-1a of ``data[position : position + size]``, 64 bits; the range must exist."""
    value = _u64(0xCBF29CE484222325)
    for i in range(size):
        value = (value ^ _u64(data[uintp(position + i)])) * _u64(0x100000001B3)
    return i64(value)


# of opened handles
HANDLE_OFFSET: Final = 0
HANDLE_KIND: Final = 1
HANDLE_QUEUE_ID: Final = 2
HANDLE_ATTEMPT: Final = 3
HANDLE_LEASED_AT: Final = 4
HANDLE_COLUMNS: Final = 5
FORGED_KIND: Final = -1  # of one that is not of this group and topic


@kernel(int64(WRITABLE_BYTES, int64, INT64S, INT64S, int64, int64, int64, int64))
def seal_handles(
    packed: Any, position: int, queue_offsets: Any, attempts: Any, kind: int, queue_id: int,
    leased_at: int, salt: int,
) -> int:  # fmt: skip
    """Write handles of one queue from a position on; return the position after the last, -1 if there is no room."""
    count = queue_offsets.size
    if attempts.size < count or position < 0 or position + count * PACKED_SIZE > packed.size:
        return i64(-1)
    for i in range(count):
        packed[position] = u8(VERSION)
        packed[position + KIND_POSITION] = u8(kind)
        write_i16(packed, position + ATTEMPT_POSITION, min(attempts[i], ATTEMPT_MAX))
        write_i32(packed, position + QUEUE_ID_POSITION, queue_id)
        write_i64(packed, position + OFFSET_IN_HANDLE, queue_offsets[i])
        write_i64(packed, position + LEASED_AT_POSITION, leased_at << 16)
        check = masked_crc(packed, position, i64(CHECK_POSITION)) ^ salt
        write_i64(packed, position + CHECK_POSITION, check)
        position += PACKED_SIZE
    return i64(position)


@kernel(int64(BYTES, int64, WRITABLE_ROWS))
def open_handles(packed: Any, salt: int, opened: Any) -> int:
    """Read handles to lines of ``opened``; one that is forged has FORGED_KIND and zeros.

    Returns how many there are, -1 if there is no room.
    """
    count = packed.size // PACKED_SIZE
    if opened.shape[0] < count or opened.shape[1] < HANDLE_COLUMNS:
        return i64(-1)
    for i in range(count):
        position = i64(i * PACKED_SIZE)
        for column in range(HANDLE_COLUMNS):
            opened[i, column] = 0
        opened[i, HANDLE_KIND] = FORGED_KIND
        check = masked_crc(packed, position, i64(CHECK_POSITION)) ^ salt
        held = read_i64(packed, position + CHECK_POSITION)
        if read_u8(packed, position) != VERSION or held != check:
            continue
        opened[i, HANDLE_OFFSET] = read_i64(packed, position + OFFSET_IN_HANDLE)
        opened[i, HANDLE_KIND] = read_u8(packed, position + KIND_POSITION)
        opened[i, HANDLE_QUEUE_ID] = read_i32(packed, position + QUEUE_ID_POSITION)
        opened[i, HANDLE_ATTEMPT] = read_i16(packed, position + ATTEMPT_POSITION) & ATTEMPT_MAX
        leased_at = read_i64(packed, position + LEASED_AT_POSITION) >> 16
        opened[i, HANDLE_LEASED_AT] = leased_at & ((1 << 48) - 1)
    return i64(count)


BEGIN: Final = 0
END: Final = 1
RECORD_OFFSET: Final = 2
RECONSUME_TIMES: Final = 3
RECORD_GROUP: Final = 4
IS_CHOSEN: Final = 5
RECORD_COLUMNS: Final = 6
_NAME: Final = text_bytes(SHARDING_KEY)


@kernel(int64(BYTES, int64, WRITABLE_ROWS, int64))
def walk_records(data: Any, with_groups: int, records: Any, row: int) -> int:
    """Fill rows of ``records`` from ``row`` on with the records in ``data``, all of them chosen.

    BEGIN and END are positions in ``data``. A record without a message group has group 0, as has each one without
    ``with_groups``. Returns the number of the row after the last; -1 if there are more, or what is there is
    not a record.
    """
    position = i64(0)
    scratch = scratch_row()
    while position < data.size:
        if row >= records.shape[0] or data.size - position < RECORD_SIZE_MIN:
            return i64(-1)
        size = i64(read_i32(data, position))
        if size < RECORD_SIZE_MIN or size > data.size - position:
            return i64(-1)
        sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
        born = 20 if sys_flag & SYS_FLAG_BORN_HOST_V6 else 8
        stored = 20 if sys_flag & SYS_FLAG_STORE_HOST_V6 else 8
        reconsume_position = position + BORN_HOST_POSITION + born + 8 + stored
        if reconsume_position + 4 > position + size:
            return i64(-1)
        records[row, BEGIN] = position
        records[row, END] = position + size
        records[row, RECORD_OFFSET] = read_i64(data, position + QUEUE_OFFSET_POSITION)
        records[row, RECONSUME_TIMES] = max(i64(read_i32(data, reconsume_position)), i64(0))
        group = i64(0)
        if with_groups:
            if frame_record(data, position, data.size, i64(0), scratch, i64(0)) != STOP_END:
                return i64(-1)
            at, length = property_value(
                data, scratch[0, PROPERTIES_POSITION], scratch[0, PROPERTIES_LENGTH], _NAME
            )
            if at >= 0:
                group = text_hash(data, at, length) | 1
        records[row, RECORD_GROUP] = group
        records[row, IS_CHOSEN] = 1
        position += size
        row += 1
    return i64(row)


BLOCK_BITS: Final = 6
BLOCK_SIZE: Final = 1 << BLOCK_BITS
_MASK: Final = BLOCK_SIZE - 1
_ALL_BITS: Final = (1 << BLOCK_SIZE) - 1
_RUN_COLUMNS: Final = 4

Run = tuple[int, int, int, int]
"""Block number, mask, and which lines they are of: begin and end."""


@kernel(int64(ROWS, int64, WRITABLE_ROWS))
def cut_runs(lines: Any, offset_column: int, runs: Any) -> int:
    """Cut lines into runs that share the block and all columns after the one of the queue offset.

    Fills the four columns of ``runs``, the mask as a signed number; returns how many, -1 if there is no room.
    """
    count = i64(0)
    if not 0 <= offset_column < lines.shape[1] or runs.shape[1] < _RUN_COLUMNS:
        return i64(-1)
    for i in range(lines.shape[0]):
        offset = lines[i, offset_column]
        bit = i64(1) << (offset & _MASK)
        is_same = count > 0 and runs[count - 1, 0] == offset >> BLOCK_BITS
        for column in range(offset_column + 1, lines.shape[1]):
            is_same = is_same and lines[i, column] == lines[i - 1, column]
        if is_same:
            runs[count - 1, 1] |= bit
            runs[count - 1, 3] = i + 1
            continue
        if count == runs.shape[0]:
            return i64(-1)
        runs[count, 0] = offset >> BLOCK_BITS
        runs[count, 1] = bit
        runs[count, 2] = i
        runs[count, 3] = i + 1
        count += 1
    return count


def runs_of(lines: npt.NDArray[np.int64], offset_column: int = 0) -> list[Run]:
    """Return the runs of lines, in their order."""
    runs = np.empty((len(lines), _RUN_COLUMNS), np.int64)
    count = cut_runs(lines, offset_column, runs)
    return [
        (number, mask & _ALL_BITS, begin, end) for number, mask, begin, end in runs[:count].tolist()
    ]
