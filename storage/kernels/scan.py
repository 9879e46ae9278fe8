"""Walking records: one verdict each, one row each.

The order of checks is a recovering broker's (size, magic, lengths, body CRC) and goes on where it
stops: ports that its clients would not decode, the property CRC where there is one, the record's own
commit offset, and a topic that could not be a directory name.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE, PORT_MAX
from storage.format.property_crc import CRC_MASK, PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    AFTER_HOSTS,
    BLANK_SIZE,
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    COMMIT_OFFSET_POSITION,
    MAGIC_BLANK,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    CHECK_ALL,
    CHECK_BODY_CRC,
    CHECK_COMMIT_OFFSET,
    CHECK_PROPERTY_CRC,
    COLUMN_COUNT,
    COMMIT_OFFSET,
    FEATURES,
    HAS_PROPERTY_CRC,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    STOP_BLANK,
    STOP_BODY_CRC,
    STOP_COMMIT_OFFSET,
    STOP_END,
    STOP_HOST,
    STOP_LENGTHS,
    STOP_MAGIC,
    STOP_PROPERTIES,
    STOP_PROPERTY_CRC,
    STOP_ROWS_FULL,
    STOP_SIZE,
    STOP_TOPIC,
    STOP_TRUNCATED,
    STOP_ZERO,
    STORE_TIMESTAMP,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_i16, read_i32, read_i64, read_u8, read_u32
from storage.kernels.primitives.crc import masked_crc
from storage.kernels.primitives.jit import BYTES, WRITABLE_ROWS, i64, inner, int64, kernel, results
from storage.kernels.primitives.prefetch import CACHE_LINE, prefetch
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.properties import crc_trailer_tells, has_crc_trailer, trailer_is_damaged
from storage.kernels.property_walk import walk_properties

AFTER_HOSTS_SIZE: Final = AFTER_HOSTS.size
_MAGIC_FIRST: Final = MAGIC_V1 >> 24  # bytes that the magics of both versions begin with
_MAGIC_SECOND: Final = MAGIC_V1 >> 16 & 0xFF
_DOT: Final = ord(".")
# Eight bytes each, as signed numbers.
_ONES: Final = 0x0101_0101_0101_0101
_HIGH_BITS: Final = 0x80 * _ONES - (1 << 64)
_FIRST_VISIBLE: Final = ord("!") * _ONES
_SLASHES: Final = ord("/") * _ONES
_LETTERS: Final = ord("a") * _ONES


@inner
def topic_is_safe(data: Any, position: int, length: int) -> bool:
    """Whether the topic could be a broker's: visible ASCII, no slash, not ``.`` or ``..``.

    Eight bytes are looked at together, from the end; as many must stand before the topic's end.
    """
    if length <= 0:
        return False
    at = position + length
    while at > position:
        at -= 8
        word = read_i64(data, at)
        if at < position:  # what stands in front of the topic is taken for letters
            of_topic = (1 << 8 * (at + 8 - position)) - 1
            word = word & of_topic | _LETTERS & ~of_topic
        if (
            word & _HIGH_BITS != 0
            or (word | _HIGH_BITS) - _FIRST_VISIBLE & _HIGH_BITS != _HIGH_BITS
            or word + _ONES & _HIGH_BITS != 0
            or ((word ^ _SLASHES) | _HIGH_BITS) - _ONES & _HIGH_BITS != _HIGH_BITS
        ):
            return False
    if length > 2:
        return True
    return read_u8(data, position) != _DOT or read_u8(data, position + length - 1) != _DOT


@inner
def expect_record(data: Any, position: int, properties_at: int, size: int) -> None:
    """Have fetched what is looked at first of a record at ``position``, were it like the one before.

    A walk without body CRCs touches a few lines a record, too far apart for the processor to guess.
    """
    if position + size <= data.size:
        prefetch(data, position)
        prefetch(data, position + CACHE_LINE)
        prefetch(data, position + properties_at)
        prefetch(data, position + properties_at + CACHE_LINE)
        prefetch(data, position + size - 1)


@inner
def frame_one(data: Any, position: int, end: int, checks: int, rows: Any, row: int) -> int:
    """What :func:`check_record` does before it looks into the properties; body CRC included."""
    if end - position < BLANK_SIZE:
        return STOP_END if end == position else STOP_TRUNCATED
    size = read_i32(data, position)
    magic = read_u32(data, position + MAGIC_POSITION)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        if magic == MAGIC_BLANK:
            return STOP_BLANK
        if size == 0 and magic == 0:
            return STOP_ZERO
        return STOP_MAGIC
    if size < RECORD_SIZE_MIN:
        return STOP_SIZE
    if size > end - position:
        return STOP_TRUNCATED
    record_end = position + size
    sys_flag = read_i32(data, position + SYS_FLAG_POSITION)
    born_host_length = IPV6_HOST_SIZE if sys_flag & SYS_FLAG_BORN_HOST_V6 else IPV4_HOST_SIZE
    store_host_length = IPV6_HOST_SIZE if sys_flag & SYS_FLAG_STORE_HOST_V6 else IPV4_HOST_SIZE
    store_timestamp_position = position + BORN_HOST_POSITION + born_host_length
    body_position = store_timestamp_position + 8 + store_host_length + AFTER_HOSTS_SIZE
    topic_length_size = 2 if magic == MAGIC_V2 else 1
    if body_position + topic_length_size + 2 > record_end:
        return STOP_LENGTHS
    body_length = read_i32(data, body_position - 4)
    topic_length_position = body_position + body_length
    if body_length < 0 or topic_length_position + topic_length_size + 2 > record_end:
        return STOP_LENGTHS
    if magic == MAGIC_V2:
        topic_length = read_i16(data, topic_length_position)
    else:
        topic_length = (read_u8(data, topic_length_position) ^ 0x80) - 0x80
    topic_position = topic_length_position + topic_length_size
    properties_length_position = topic_position + topic_length
    if topic_length < 0 or properties_length_position + 2 > record_end:
        return STOP_LENGTHS
    properties_length = read_i16(data, properties_length_position)
    properties_position = properties_length_position + 2
    if properties_length < 0 or properties_position + properties_length != record_end:
        return STOP_LENGTHS
    if (
        checks & CHECK_BODY_CRC
        and body_length > 0
        and masked_crc(data, body_position, body_length)
        != read_u32(data, position + BODY_CRC_POSITION) & CRC_MASK
    ):
        return STOP_BODY_CRC
    if (
        read_u32(data, store_timestamp_position - 4) > PORT_MAX
        or read_u32(data, body_position - AFTER_HOSTS_SIZE - 4) > PORT_MAX
    ):
        return STOP_HOST
    if not topic_is_safe(data, topic_position, topic_length):
        return STOP_TOPIC
    if checks & CHECK_PROPERTY_CRC and properties_length > 0 and not read_u8(data, record_end - 1):
        return STOP_PROPERTIES  # zeros where the tail was torn off, a property CRC maybe with it
    rows[row, POSITION] = position
    rows[row, SIZE] = size
    rows[row, QUEUE_ID] = read_i32(data, position + QUEUE_ID_POSITION)
    rows[row, QUEUE_OFFSET] = read_i64(data, position + QUEUE_OFFSET_POSITION)
    rows[row, COMMIT_OFFSET] = read_i64(data, position + COMMIT_OFFSET_POSITION)
    rows[row, SYS_FLAG] = sys_flag
    rows[row, STORE_TIMESTAMP] = read_i64(data, store_timestamp_position)
    rows[row, STORE_TIMESTAMP_POSITION] = store_timestamp_position
    rows[row, BODY_POSITION] = body_position
    rows[row, BODY_LENGTH] = body_length
    rows[row, TOPIC_POSITION] = topic_position
    rows[row, TOPIC_LENGTH] = topic_length
    rows[row, PROPERTIES_POSITION] = properties_position
    rows[row, PROPERTIES_LENGTH] = properties_length
    return STOP_END


@inner
def frame_record(data: Any, position: int, end: int, checks: int, rows: Any, row: int) -> int:
    """What :func:`frame_one` does, of a record that another one follows."""
    stop = frame_one(data, position, end, checks, rows, row)
    if stop == STOP_END and position < end:
        size = rows[row, SIZE]
        expect_record(data, position + size, rows[row, PROPERTIES_POSITION] - position, size)
    return stop


@inner
def content_stop(
    data: Any, commit_offset: int, checks: int, has_property_crc: bool, rows: Any, row: int
) -> int:
    """What :func:`check_record` looks at last, of a framed record: its property CRC and its place."""
    position = rows[row, POSITION]
    size = rows[row, SIZE]
    if checks & CHECK_PROPERTY_CRC and rows[row, PROPERTIES_LENGTH] >= PROPERTY_CRC_SIZE:
        trailer = position + size - PROPERTY_CRC_SIZE
        if has_property_crc:
            crc = masked_crc(data, position, size - PROPERTY_CRC_SIZE)
            if not crc_trailer_tells(data, trailer, crc):
                return i64(STOP_PROPERTY_CRC)
        elif trailer_is_damaged(data, position, trailer):
            return i64(STOP_PROPERTY_CRC)
    if checks & CHECK_COMMIT_OFFSET and rows[row, COMMIT_OFFSET] != commit_offset:
        return i64(STOP_COMMIT_OFFSET)
    return i64(STOP_END)


@inner
def check_alone(data: Any, position: int, end: int, commit_offset: int, rows: Any, row: int) -> int:
    """What :func:`check_record` returns with CHECK_ALL; nothing of the properties is in the row."""
    stop = i64(frame_one(data, position, end, CHECK_ALL, rows, row))
    if stop != STOP_END or position == end:
        return stop
    has_property_crc = has_crc_trailer(
        data, rows[row, PROPERTIES_POSITION], rows[row, PROPERTIES_LENGTH]
    )
    return content_stop(data, commit_offset, i64(CHECK_ALL), has_property_crc, rows, row)


@inner
def check_record(
    data: Any, position: int, end: int, commit_offset: int, checks: int, rows: Any, row: int
) -> int:
    """Fill ``rows[row]`` from the record at ``position`` and return its stop, END if it is good.

    ``0 <= position <= end <= data.size`` must hold. Columns are only whole when END is returned.
    """
    stop = frame_record(data, position, end, checks, rows, row)
    if stop != STOP_END or position == end:
        return stop
    walk_properties(data, rows[row, PROPERTIES_POSITION], rows[row, PROPERTIES_LENGTH], rows, row)
    has_property_crc = rows[row, FEATURES] & HAS_PROPERTY_CRC != 0
    return content_stop(data, commit_offset, checks, has_property_crc, rows, row)


@inner
def scan_rows(
    data: Any, begin: int, end: int, commit_offset_of_begin: int, checks: int, rows: Any
) -> tuple[int, int, int]:
    """Walk the records of ``data[begin:end]`` until one is not good or ``rows`` is full.

    ``checks`` are CHECK_* bits; ``commit_offset_of_begin`` is what CHECK_COMMIT_OFFSET starts from.
    Returns ``(row_count, next_position, stop)``: rows ``[0, row_count)`` are whole and good,
    ``next_position`` is where the walk stopped, ``stop`` (a STOP_*) says why. STOP_END means
    ``next_position == end``. Of a blank record ``next_position`` is its own position. A range that
    is not inside ``data`` gives ``(0, begin, STOP_TRUNCATED)``.
    """
    if begin < 0 or end > data.size or begin > end or rows.shape[1] != COLUMN_COUNT:
        return i64(0), i64(begin), i64(STOP_TRUNCATED)
    capacity = rows.shape[0]
    count = i64(0)
    position = i64(begin)
    while position < end:
        if count >= capacity:
            return count, position, i64(STOP_ROWS_FULL)
        commit_offset = commit_offset_of_begin + (position - begin)
        stop = check_record(data, position, end, commit_offset, checks, rows, count)
        if stop != STOP_END:
            return count, position, i64(stop)
        position += rows[count, SIZE]
        count += 1
    return count, position, i64(STOP_END)


scan_records: Final = kernel(results(int64, 3)(BYTES, int64, int64, int64, int64, WRITABLE_ROWS))(
    scan_rows
)


@kernel(int64(BYTES, int64, int64, int64))
def find_record(data: Any, begin: int, end: int, commit_offset_of_begin: int) -> int:
    """Position of the first whole record at or after ``begin``, -1 if ``data[begin:end]`` has none.

    For going on after damage: only a record with its own commit offset where it stands and every
    check passed counts, so neither a record inside a body nor an old tail is taken.
    """
    if begin < 0 or end > data.size or begin > end:
        return i64(-1)
    row = scratch_row()
    for position in range(begin, end - RECORD_SIZE_MIN + 1):
        if (
            read_u8(data, position + MAGIC_POSITION) != _MAGIC_FIRST
            or read_u8(data, position + MAGIC_POSITION + 1) != _MAGIC_SECOND
        ):
            continue
        commit_offset = commit_offset_of_begin + (position - begin)
        if read_i64(data, position + COMMIT_OFFSET_POSITION) != commit_offset:
            continue
        if check_record(data, position, end, commit_offset, CHECK_ALL, row, 0) == STOP_END:
            return i64(position)
    return i64(-1)
