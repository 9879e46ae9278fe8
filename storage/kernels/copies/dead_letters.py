"""Copies of records for a group's dead letter topic, with the fields that a broker gives them.

A copy keeps body, flag, born time, born host and all properties, but for these::

    RETRY_TOPIC          the topic that the record stands in, unless the record has the property
    ORIGIN_MESSAGE_ID    the record's offset message id, unless the record has the property
    DELAY                0
    WAIT                 false

Its queue is 0, its reconsumeTimes are given. The light queues that the record was in do not get the copy.
A property that would make the block too long is left out: the message counts for more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.properties import (
    DELAY,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    NAME_END,
    ORIGIN_MESSAGE_ID,
    PROPERTY_END,
    RETRY_TOPIC,
    WAIT,
)
from storage.format.record_layout import COMMIT_OFFSET_POSITION
from storage.kernels.columns import (
    COLUMN_COUNT,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    SIZE,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.copies.records import (
    BLOCK_SIZE_MAX,
    COPY_TOPIC_SIZE_MAX,
    begin_copy,
    dropped_names,
    end_copy,
    has_row,
    keep_properties,
)
from storage.kernels.placed_record import host_size_of
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)
from storage.kernels.primitives.text import text_bytes, write_hex_bytes
from storage.kernels.properties import has_property

GROWTH_MAX: Final = 1_024  # bytes that a copy may be longer than its record


def _pair(name: str, value: str) -> Any:
    return text_bytes(f"{name}\x01{value}\x02")


_RETRY_TOPIC: Final = text_bytes(RETRY_TOPIC)
_ORIGIN: Final = text_bytes(ORIGIN_MESSAGE_ID)
_DROPPED: Final = dropped_names((DELAY, WAIT, INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
_OWN_PAIRS: Final = np.concatenate((_pair(DELAY, "0"), _pair(WAIT, "false")))


@inner
def write_name(dst: Any, position: int, name: Any) -> int:
    """Write a property's name and its end; return the position of its value."""
    copy_bytes(dst, position, name, 0, name.size)
    dst[uintp(position + name.size)] = u8(NAME_END)
    return i64(position + name.size + 1)


@inner
def write_block(src: Any, rows: Any, row: int, dst: Any, block: int) -> int:
    """Write the copy's properties from position ``block`` on; return the position after them."""
    at = keep_properties(src, rows, row, _DROPPED, dst, block)
    begin = rows[row, PROPERTIES_POSITION]
    length = rows[row, PROPERTIES_LENGTH]
    room = block + BLOCK_SIZE_MAX
    if at + _OWN_PAIRS.size <= room:
        copy_bytes(dst, at, _OWN_PAIRS, 0, _OWN_PAIRS.size)
        at += _OWN_PAIRS.size
    size = rows[row, TOPIC_LENGTH]
    if (
        not has_property(src, begin, length, _RETRY_TOPIC)
        and at + _RETRY_TOPIC.size + size + 2 <= room
    ):
        at = write_name(dst, at, _RETRY_TOPIC)
        copy_bytes(dst, at, src, rows[row, TOPIC_POSITION], size)
        at += size
        dst[uintp(at)] = u8(PROPERTY_END)
        at += 1
    size = host_size_of(rows, row)
    if (
        not has_property(src, begin, length, _ORIGIN)
        and at + _ORIGIN.size + 2 * (size + 8) + 2 <= room
    ):
        at = write_name(dst, at, _ORIGIN)
        host = rows[row, STORE_TIMESTAMP_POSITION] + 8
        at = write_hex_bytes(dst, at, src, host, host + size)
        offset = rows[row, POSITION] + COMMIT_OFFSET_POSITION
        at = write_hex_bytes(dst, at, src, offset, offset + 8)
        dst[uintp(at)] = u8(PROPERTY_END)
        at += 1
    return i64(at)


@kernel(int64(BYTES, ROWS, int64, BYTES, INT64S, WRITABLE_BYTES))
def copy_dead_letters(
    src: Any, rows: Any, count: int, topic: Any, reconsume_times: Any, dst: Any
) -> int:
    """Write copies of rows ``[0, count)`` of ``src`` to ``dst``, one after the other, to be placed.

    ``rows`` come from a scan of ``src``. Row i gets ``reconsume_times[i]``. ``dst`` needs room for the sizes
    of all records and `GROWTH_MAX` for each. Returns the size of the copies, -1 if an argument does not fit.
    """
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or reconsume_times.size < count
        or topic.size < 1
        or topic.size > COPY_TOPIC_SIZE_MAX
    ):
        return i64(-1)
    needed = i64(0)
    for i in range(count):
        if not has_row(src, rows, i):
            return i64(-1)
        needed += rows[i, SIZE] + GROWTH_MAX
    if needed > dst.size:
        return i64(-1)
    position = i64(0)
    for i in range(count):
        block = begin_copy(
            src, rows, i, topic, 0, topic.size, 0, rows[i, SYS_FLAG], reconsume_times[i], 0, dst,
            position,
        )  # fmt: skip
        end = write_block(src, rows, i, dst, block)
        end_copy(dst, position, block, end)
        position = end
    return position
