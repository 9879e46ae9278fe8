"""Copies of records with another topic and queue, properties left out and properties added.

A copy keeps body, flag, born time and born host. What else it gets is a row of targets::

    column  name             meaning
    0       TOPIC_AT         where its topic lies in the text
    1       TOPIC_SIZE       bytes
    2       TARGET_QUEUE
    3       TARGET_FLAG      its system flag; the bits of IPv6 hosts are set as the hosts are
    4       TARGET_TIMES     its reconsumeTimes
    5       TARGET_PREPARED  its preparedTransactionOffset
    6       PAIRS_AT         where the properties that are added lie in the text: whole pairs
    7       PAIRS_SIZE       bytes

Queue offset, commit offset, store time and store host are zero: they are filled in when the copy is placed. A
property CRC is left out, and so are the properties named in ``dropped``: names, each ended by 0x01. A pair
that would make the block too long is not added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.properties import (
    CRC32,
    NAME_END,
    PROPERTIES_SIZE_MAX,
    PROPERTY_END,
)
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    COMMIT_OFFSET_POSITION,
    MAGIC_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COLUMN_COUNT,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    SIZE,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
)
from storage.kernels.primitives.big_endian import write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import bytes_equal, copy_bytes, find_byte
from storage.kernels.primitives.jit import (
    BYTES,
    ROWS,
    WRITABLE_BYTES,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import property_ends
from storage.kernels.record_parts import magic_of, write_topic

TOPIC_AT: Final = 0
TOPIC_SIZE: Final = 1
TARGET_QUEUE: Final = 2
TARGET_FLAG: Final = 3
TARGET_TIMES: Final = 4
TARGET_PREPARED: Final = 5
PAIRS_AT: Final = 6
PAIRS_SIZE: Final = 7
TARGET_COLUMNS: Final = 8

COPY_TOPIC_SIZE_MAX: Final = 255
BLOCK_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - PROPERTY_CRC_SIZE - 1
COPY_GROWTH: Final = 8  # bytes of a longer topic length and a missing end of the last property
_HOST_SIZE: Final = 8  # of the store host, which is filled in when the copy is placed
_HOST_FLAGS: Final = SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6


def new_targets(count: int) -> npt.NDArray[np.int64]:
    """Return a table of ``count`` targets, all zero."""
    return np.zeros((count, TARGET_COLUMNS), np.int64)


def dropped_names(names: Iterable[str]) -> npt.NDArray[np.uint8]:
    """Return names as ``copy_records`` takes those of properties that are left out."""
    return text_bytes("".join(f"{name}\x01" for name in (CRC32, *names)))


@inner
def is_dropped(data: Any, position: int, length: int, dropped: Any) -> bool:
    """Whether a property's name is one of those that are left out."""
    at = i64(0)
    while at < dropped.size:
        end = at
        while end < dropped.size and dropped[uintp(end)] != NAME_END:
            end += 1
        if end - at == length and bytes_equal(data, position, dropped, at, length):
            return True
        at = end + 1
    return False


@inner
def keep_properties(src: Any, rows: Any, row: int, dropped: Any, dst: Any, at: int) -> int:
    """Write a record's properties but those that are left out; return the position after them."""
    begin = rows[row, PROPERTIES_POSITION]
    end = begin + rows[row, PROPERTIES_LENGTH]
    while begin < end:
        separator, stop = property_ends(src, begin, end)
        is_named = begin < separator < stop
        if stop > begin and not (is_named and is_dropped(src, begin, separator - begin, dropped)):
            copy_bytes(dst, at, src, begin, stop - begin)
            at += stop - begin
            dst[uintp(at)] = u8(PROPERTY_END)
            at += 1
        begin = stop + 1
    return i64(at)


@inner
def add_pairs(text: Any, begin: int, size: int, dst: Any, at: int, room: int) -> int:
    """Write pairs that end at or before ``room``; return the position after them."""
    end = i64(begin + size)
    while begin < end:
        length = min(find_byte(text, begin, end, PROPERTY_END) + 1, end) - begin
        if at + length <= room:
            copy_bytes(dst, at, text, begin, length)
            at += length
        begin += length
    return i64(at)


@inner
def begin_copy(
    src: Any, rows: Any, row: int, text: Any, topic_at: int, topic_size: int, queue_id: int,
    sys_flag: int, reconsume_times: int, prepared_offset: int, dst: Any, position: int,
) -> int:  # fmt: skip
    """Write a copy up to its properties; return where they begin."""
    begin = rows[row, POSITION]
    head = rows[row, STORE_TIMESTAMP_POSITION] - begin
    copy_bytes(dst, position, src, begin, head)
    write_i32(dst, position + MAGIC_POSITION, magic_of(topic_size))
    write_i32(dst, position + QUEUE_ID_POSITION, queue_id)
    write_i64(dst, position + QUEUE_OFFSET_POSITION, i64(0))
    write_i64(dst, position + COMMIT_OFFSET_POSITION, i64(0))
    born_host = rows[row, SYS_FLAG] & SYS_FLAG_BORN_HOST_V6
    write_i32(dst, position + SYS_FLAG_POSITION, sys_flag & ~_HOST_FLAGS | born_host)
    at = i64(position + head)
    write_i64(dst, at, i64(0))  # store time
    write_i64(dst, at + 8, i64(0))  # store host
    at += 8 + _HOST_SIZE
    write_i32(dst, at, reconsume_times)
    write_i64(dst, at + 4, prepared_offset)
    body = rows[row, BODY_LENGTH]
    write_i32(dst, at + 12, body)
    at += 16
    copy_bytes(dst, at, src, rows[row, BODY_POSITION], body)
    at += body
    return write_topic(dst, at, text, topic_at, topic_size) + 2


@inner
def end_copy(dst: Any, position: int, block: int, end: int) -> None:
    """Write the lengths of a copy whose properties lie in ``[block, end)``."""
    write_i16(dst, block - 2, end - block)
    write_i32(dst, position, end - position)


@inner
def has_row(src: Any, rows: Any, row: int) -> bool:
    """Whether a row's record lies in ``src``."""
    position = rows[row, POSITION]
    return bool(position >= 0 and position + rows[row, SIZE] <= src.size)


@kernel(int64(BYTES, ROWS, int64, BYTES, ROWS, BYTES, WRITABLE_BYTES))
def copy_records(
    src: Any, rows: Any, count: int, text: Any, targets: Any, dropped: Any, dst: Any
) -> int:
    """Write copies of rows ``[0, count)`` of ``src`` to ``dst``, one after the other, to be placed.

    ``rows`` come from a scan of ``src``; line i of ``targets`` says what copy i gets. ``dst`` needs the room
    that :func:`copies_size_max` returns. Returns the size of the copies, -1 if an argument does not fit.
    """
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or count > targets.shape[0]
        or targets.shape[1] != TARGET_COLUMNS
    ):
        return i64(-1)
    needed = i64(0)
    for i in range(count):
        topic_at = targets[i, TOPIC_AT]
        topic_size = targets[i, TOPIC_SIZE]
        pairs_at = targets[i, PAIRS_AT]
        pairs_size = targets[i, PAIRS_SIZE]
        if (
            not has_row(src, rows, i)
            or topic_size < 1
            or topic_size > COPY_TOPIC_SIZE_MAX
            or topic_at < 0
            or topic_at + topic_size > text.size
            or pairs_size < 0
            or pairs_size > PROPERTIES_SIZE_MAX
            or pairs_at < 0
            or pairs_at + pairs_size > text.size
        ):
            return i64(-1)
        needed += rows[i, SIZE] + topic_size + pairs_size + COPY_GROWTH
    if needed > dst.size:
        return i64(-1)
    position = i64(0)
    for i in range(count):
        block = begin_copy(
            src, rows, i, text, targets[i, TOPIC_AT], targets[i, TOPIC_SIZE],
            targets[i, TARGET_QUEUE], targets[i, TARGET_FLAG], targets[i, TARGET_TIMES],
            targets[i, TARGET_PREPARED], dst, position,
        )  # fmt: skip
        at = keep_properties(src, rows, i, dropped, dst, block)
        at = add_pairs(
            text, targets[i, PAIRS_AT], targets[i, PAIRS_SIZE], dst, at, block + BLOCK_SIZE_MAX
        )
        end_copy(dst, position, block, at)
        position = at
    return position


def copies_size_max(rows: Any, count: int, targets: Any) -> int:
    """Return the room that ``copy_records`` needs for its copies."""
    added = targets[:count, TOPIC_SIZE].sum() + targets[:count, PAIRS_SIZE].sum()
    return int(rows[:count, SIZE].sum() + added) + count * COPY_GROWTH
