"""What a client encoded, checked strictly: every length, name and bit that is not the store's to set."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.names import topic_name_problem
from storage.format.properties import PROPERTY_END
from storage.format.property_crc import CRC_MASK, PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    BODY_CRC_POSITION,
    MAGIC_POSITION,
    MAGIC_V2,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_LZ4,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_ZLIB,
    SYS_FLAG_ZSTD,
    TOPIC_SIZE_MAX_V1,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    CHECK_BODY_CRC,
    COLUMN_COUNT,
    FEATURES,
    HAS_PROPERTY_CRC,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    SIZE,
    STOP_BODY_CRC,
    STOP_END,
    STOP_PROPERTIES,
    STOP_QUEUE,
    STOP_ROWS_FULL,
    STOP_SYS_FLAG,
    STOP_TOPIC,
    STOP_VERSION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_u8, read_u32
from storage.kernels.primitives.jit import BYTES, WRITABLE_ROWS, i64, inner, int64, kernel, results
from storage.kernels.properties import trailer_is_damaged
from storage.kernels.property_walk import walk_client_properties
from storage.kernels.scan import frame_record

# Compressed, multi-tag, IPv6 hosts, and compression types 0 to 3; everything else is the store's.
CLIENT_SYS_FLAGS: Final = (
    SYS_FLAG_COMPRESSED
    | SYS_FLAG_MULTI_TAGS
    | SYS_FLAG_BORN_HOST_V6
    | SYS_FLAG_STORE_HOST_V6
    | SYS_FLAG_LZ4
    | SYS_FLAG_ZSTD
    | SYS_FLAG_ZLIB
)

LEGAL_IN_TOPIC: Final = np.array(
    [topic_name_problem(chr(byte)) is None for byte in range(256)], np.uint8
)


@inner
def ends_well(data: Any, position: int, rows: Any, row: int) -> bool:
    """Whether the end of the properties would not be taken for a torn or a damaged one when read."""
    length = rows[row, PROPERTIES_LENGTH]
    end = rows[row, PROPERTIES_POSITION] + length
    if length > 0 and read_u8(data, end - 1) == 0:
        return False
    trailer = end - PROPERTY_CRC_SIZE
    if rows[row, FEATURES] & HAS_PROPERTY_CRC:
        return length == PROPERTY_CRC_SIZE or read_u8(data, trailer - 1) == PROPERTY_END
    return length < PROPERTY_CRC_SIZE or not trailer_is_damaged(data, position, trailer)


@inner
def check_client_record(data: Any, position: int, end: int, rows: Any, row: int) -> int:
    """Stop of one record of a batch; END only if all of it is a client's to send."""
    stop = frame_record(data, position, end, i64(CHECK_BODY_CRC), rows, row)
    if stop != STOP_END:
        return stop
    topic_length = rows[row, TOPIC_LENGTH]
    topic_position = rows[row, TOPIC_POSITION]
    is_long = topic_length > TOPIC_SIZE_MAX_V1
    if is_long != (read_u32(data, position + MAGIC_POSITION) == MAGIC_V2):
        return STOP_VERSION
    for i in range(topic_length):
        if LEGAL_IN_TOPIC[read_u8(data, topic_position + i)] == 0:
            return STOP_TOPIC
    if rows[row, QUEUE_ID] < 0:
        return STOP_QUEUE
    if rows[row, SYS_FLAG] & ~CLIENT_SYS_FLAGS:
        return STOP_SYS_FLAG
    if rows[row, BODY_LENGTH] == 0 and read_u32(data, position + BODY_CRC_POSITION) & CRC_MASK:
        return STOP_BODY_CRC
    stop = walk_client_properties(
        data, rows[row, PROPERTIES_POSITION], rows[row, PROPERTIES_LENGTH], rows, row
    )
    if stop == STOP_END and not ends_well(data, position, rows, row):
        return STOP_PROPERTIES
    return stop


@inner
def validate_records(records: Any, rows: Any) -> tuple[int, int, int]:
    """Check every record of a client's batch and fill ``rows``.

    A record must have lengths that add up, magic V1 or V2 as the topic's length asks, a topic of
    legal characters, a queue id >= 0, the right body CRC, no system flag but compression, multi-tag
    and IPv6 bits, and well-formed UTF-8 properties whose names are not the store's (a property CRC
    trailer may end them; its digits are not looked at), delays that are numbers, no ``|`` in TAGS, and
    no end that would be taken for a torn or damaged one.
    Not checked: body and topic length limits, whether topic and queue exist, the fields that
    :func:`place_records` sets.

    Returns ``(count, bad_index, stop)``. All good: ``(count, -1, STOP_END)``. Otherwise
    ``bad_index == count`` is the first bad record and ``stop`` says why; STOP_ROWS_FULL if there
    are more records than rows.
    """
    if rows.shape[1] != COLUMN_COUNT:
        return i64(0), i64(0), i64(STOP_ROWS_FULL)
    end = records.size
    count = i64(0)
    position = i64(0)
    while position < end:
        if count >= rows.shape[0]:
            return count, count, i64(STOP_ROWS_FULL)
        stop = check_client_record(records, position, end, rows, count)
        if stop != STOP_END:
            return count, count, i64(stop)
        position += rows[count, SIZE]
        count += 1
    return count, i64(-1), i64(STOP_END)


validate_batch: Final = kernel(results(int64, 3)(BYTES, WRITABLE_ROWS))(validate_records)
