"""One record copied into the log, and what its row becomes there."""

from __future__ import annotations

from typing import Any

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.properties import PROPERTY_END
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import SYS_FLAG_POSITION, SYS_FLAG_STORE_HOST_V6
from storage.kernels.columns import (
    BODY_POSITION,
    COLUMN_COUNT,
    COMMIT_OFFSET,
    FEATURES,
    HAS_PROPERTY_CRC,
    KEYS_POSITION,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_OFFSET,
    SIZE,
    STORE_TIMESTAMP,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_POSITION,
    UNIQ_KEY_POSITION,
)
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import i64, inner, u8, uintp


@inner
def trailer_growth(data: Any, rows: Any, row: int, append_property_crc: bool) -> int:
    """Bytes by which a record's properties grow for a property CRC trailer."""
    if not append_property_crc or rows[row, FEATURES] & HAS_PROPERTY_CRC:
        return i64(0)
    length = rows[row, PROPERTIES_LENGTH]
    if length > 0 and read_u8(data, rows[row, PROPERTIES_POSITION] + length - 1) != PROPERTY_END:
        return i64(PROPERTY_CRC_SIZE + 1)
    return i64(PROPERTY_CRC_SIZE)


@inner
def host_size_of(rows: Any, row: int) -> int:
    """Bytes of the record's own store host."""
    if rows[row, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6:
        return i64(IPV6_HOST_SIZE)
    return i64(IPV4_HOST_SIZE)


@inner
def placed_size_of(rows: Any, row: int, growth: int, store_host_size: int) -> int:
    """Bytes of a record once it is placed."""
    return i64(rows[row, SIZE] + growth + store_host_size - host_size_of(rows, row))


@inner
def copy_record(
    dst: Any, dst_position: int, src: Any, rows: Any, row: int, store_host: Any, growth: int,
    placed_size: int,
) -> None:  # fmt: skip
    """Copy one record with another store host and ``growth`` more bytes of properties.

    Lengths, host and system flag are set; the trailer that the growth is for is not.
    """
    position = rows[row, POSITION]
    size = rows[row, SIZE]
    host_size = store_host.size
    old_host_size = host_size_of(rows, row)
    host_at = rows[row, STORE_TIMESTAMP_POSITION] + 8 - position
    if host_size == old_host_size:
        copy_bytes(dst, dst_position, src, position, size)
    else:
        tail = host_at + old_host_size
        copy_bytes(dst, dst_position, src, position, host_at)
        copy_bytes(dst, dst_position + host_at + host_size, src, position + tail, size - tail)
        sys_flag = rows[row, SYS_FLAG] ^ SYS_FLAG_STORE_HOST_V6
        write_i32(dst, dst_position + SYS_FLAG_POSITION, sys_flag)
    for i in range(host_size):
        dst[uintp(dst_position + host_at + i)] = store_host[uintp(i)]
    if growth > 0:
        length = rows[row, PROPERTIES_LENGTH]
        end = dst_position + placed_size - growth
        if growth > PROPERTY_CRC_SIZE:
            dst[uintp(end)] = u8(PROPERTY_END)
        write_i16(dst, end - length - 2, length + growth)
    if placed_size != size:
        write_i32(dst, dst_position, placed_size)


@inner
def tell_placed(
    rows: Any, row: int, placed_rows: Any, dst_position: int, growth: int, host_size: int,
    queue_offset: int, commit_offset: int, store_timestamp: int, inserted: int,
) -> None:  # fmt: skip
    """Make ``placed_rows[row]`` the row of the copy, whose properties got ``inserted`` bytes before them."""
    shift = dst_position - rows[row, POSITION]
    host_shift = host_size - host_size_of(rows, row)
    for column in range(COLUMN_COUNT):
        placed_rows[row, column] = rows[row, column]
    placed_rows[row, POSITION] = dst_position
    placed_rows[row, STORE_TIMESTAMP_POSITION] += shift
    shift += host_shift
    placed_rows[row, BODY_POSITION] += shift
    placed_rows[row, TOPIC_POSITION] += shift
    placed_rows[row, PROPERTIES_POSITION] += shift
    if rows[row, UNIQ_KEY_POSITION] > 0:
        placed_rows[row, UNIQ_KEY_POSITION] += shift + inserted
    if rows[row, KEYS_POSITION] > 0:
        placed_rows[row, KEYS_POSITION] += shift + inserted
    placed_rows[row, SIZE] += growth + host_shift + inserted
    placed_rows[row, PROPERTIES_LENGTH] += inserted
    if host_shift != 0:
        placed_rows[row, SYS_FLAG] ^= SYS_FLAG_STORE_HOST_V6
    if growth > 0:
        placed_rows[row, PROPERTIES_LENGTH] += growth
        placed_rows[row, FEATURES] |= HAS_PROPERTY_CRC
    placed_rows[row, QUEUE_OFFSET] = queue_offset
    placed_rows[row, COMMIT_OFFSET] = commit_offset
    placed_rows[row, STORE_TIMESTAMP] = store_timestamp
