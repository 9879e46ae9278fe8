"""Kernels that give records a place in a new log: how large they will be, where, and the copy itself.

A record keeps every field but the two that name its place, and the property CRC over them. On wish
its topic is replaced, and a property added; both change its size.
"""

from __future__ import annotations

from typing import Any

from storage.format.properties import PROPERTIES_SIZE_MAX, PROPERTY_END
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    BLANK_SIZE,
    COMMIT_OFFSET_POSITION,
    MAGIC_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
)
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    COLUMN_COUNT,
    FEATURES,
    HAS_PROPERTY_CRC,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    SIZE,
)
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import copy_bytes, masked_crc
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)
from storage.kernels.properties import write_crc_trailer
from storage.kernels.record_parts import magic_of, topic_field, write_topic


@inner
def own_properties(rows: Any, row: int) -> int:
    """Bytes of a record's properties without the property CRC trailer."""
    length = rows[row, PROPERTIES_LENGTH]
    if rows[row, FEATURES] & HAS_PROPERTY_CRC:
        length -= PROPERTY_CRC_SIZE
    return i64(length)


@inner
def lacks_terminator(src: Any, rows: Any, row: int, length: int) -> bool:
    """Whether the last pair of ``length`` bytes of properties has no end of its own."""
    return length > 0 and read_u8(src, rows[row, PROPERTIES_POSITION] + length - 1) != PROPERTY_END


@inner
def new_properties(src: Any, rows: Any, row: int, extra: int) -> int:
    """Bytes of a record's properties with ``extra`` bytes more, the trailer included."""
    length = own_properties(rows, row)
    if extra > 0 and lacks_terminator(src, rows, row, length):
        length += 1
    if rows[row, FEATURES] & HAS_PROPERTY_CRC:
        length += PROPERTY_CRC_SIZE
    return i64(length + extra)


@kernel(int64(BYTES, ROWS, int64, INT64S, WRITABLE_INT64S))
def placed_sizes(src: Any, rows: Any, topic_length: int, extra_starts: Any, sizes: Any) -> int:
    """Fill ``sizes`` with the bytes that each record will take; return their sum.

    ``topic_length`` is that of a new topic, 0 to keep the records' own. ``extra_starts`` (one more
    than rows, or empty) are where each record's additional property bytes begin. Returns -1 - i if
    the properties of record i would get too long, or minus all rows - 1 if an argument does not fit.
    """
    count = rows.shape[0]
    extended = extra_starts.size > 0
    if (
        sizes.size < count
        or rows.shape[1] != COLUMN_COUNT
        or (extended and extra_starts.size < count + 1)
    ):
        return i64(-1 - count)
    total = i64(0)
    for i in range(count):
        size = rows[i, SIZE]
        if topic_length > 0 or extended:
            extra = extra_starts[i + 1] - extra_starts[i] if extended else i64(0)
            length = new_properties(src, rows, i, extra)
            if length > PROPERTIES_SIZE_MAX:
                return i64(-1 - i)
            head = rows[i, BODY_POSITION] + rows[i, BODY_LENGTH] - rows[i, POSITION]
            old = rows[i, PROPERTIES_POSITION] - 2 - rows[i, POSITION] - head
            size = head + (topic_field(topic_length) if topic_length > 0 else old) + 2 + length
        sizes[i] = size
        total += size
    return total


@kernel(int64(INT64S, int64, int64, WRITABLE_INT64S))
def lay_out(sizes: Any, begin: int, file_size: int, offsets: Any) -> int:
    """Give each record its commit offset, from ``begin`` on, as an appender would.

    A record goes into the next file where it does not leave room for a blank after it. Returns the
    end, -1 - i if record i is too long for any file.
    """
    position = i64(begin)
    if offsets.size < sizes.size or file_size <= 0:
        return i64(-1 - sizes.size)
    for i in range(sizes.size):
        needed = sizes[i] + BLANK_SIZE
        if needed > file_size:
            return i64(-1 - i)
        left = file_size - position % file_size
        if needed > left:
            position += left
        offsets[i] = position
        position += sizes[i]
    return position


@inner
def write_changed(
    dst: Any, at: int, src: Any, rows: Any, row: int, size: int, topic: Any, extra: Any,
    extra_begin: int, extra_size: int,
) -> None:  # fmt: skip
    """Copy a record whose topic or properties change; the trailer's digits are left to do."""
    position = rows[row, POSITION]
    head = rows[row, BODY_POSITION] + rows[row, BODY_LENGTH] - position
    copy_bytes(dst, at, src, position, head)
    write_i32(dst, at, size)
    place = at + head
    old = rows[row, PROPERTIES_POSITION] - 2 - position - head
    if topic.size > 0:
        write_i32(dst, at + MAGIC_POSITION, magic_of(topic.size))
        place = write_topic(dst, place, topic, i64(0), topic.size)
    else:
        copy_bytes(dst, place, src, position + head, old)
        place += old
    write_i16(dst, place, new_properties(src, rows, row, extra_size))
    place += 2
    own = own_properties(rows, row)
    copy_bytes(dst, place, src, rows[row, PROPERTIES_POSITION], own)
    place += own
    if extra_size > 0:
        if lacks_terminator(src, rows, row, own):
            dst[uintp(place)] = u8(PROPERTY_END)
            place += 1
        copy_bytes(dst, place, extra, extra_begin, extra_size)


@kernel(
    int64(
        WRITABLE_BYTES, int64, BYTES, ROWS, INT64S, INT64S, INT64S, INT64S, BYTES, BYTES, INT64S
    )
)  # fmt: skip
def place_at(
    dst: Any, dst_offset: int, src: Any, rows: Any, sizes: Any, offsets: Any, queue_ids: Any,
    queue_offsets: Any, topic: Any, extra: Any, extra_starts: Any,
) -> int:  # fmt: skip
    """Copy each record to its commit offset; ``dst_offset`` is the commit offset of ``dst[0]``.

    ``sizes`` come from :func:`placed_sizes`, ``offsets`` from :func:`lay_out`; ``topic`` is the new
    topic or empty, ``extra`` holds additional properties, those of record i from ``extra_starts[i]``
    on (empty for none). Returns the number of records, -1 with nothing written if a record would
    not lie inside an array.
    """
    count = rows.shape[0]
    extended = extra_starts.size > 0
    if (
        rows.shape[1] != COLUMN_COUNT
        or min(sizes.size, offsets.size, queue_ids.size, queue_offsets.size) < count
        or (extended and (extra_starts.size < count + 1 or extra_starts[count] > extra.size))
    ):
        return i64(-1)
    for i in range(count):
        if (
            offsets[i] < dst_offset
            or offsets[i] - dst_offset + sizes[i] > dst.size
            or rows[i, POSITION] < 0
            or rows[i, POSITION] + rows[i, SIZE] > src.size
            or (topic.size == 0 and not extended and sizes[i] != rows[i, SIZE])
            or (extended and (extra_starts[i] < 0 or extra_starts[i] > extra_starts[i + 1]))
        ):
            return i64(-1)
    for i in range(count):
        at = offsets[i] - dst_offset
        if topic.size == 0 and not extended:
            copy_bytes(dst, at, src, rows[i, POSITION], rows[i, SIZE])
        else:
            begin = extra_starts[i] if extended else i64(0)
            length = extra_starts[i + 1] - begin if extended else i64(0)
            write_changed(dst, at, src, rows, i, sizes[i], topic, extra, begin, length)
        write_i32(dst, at + QUEUE_ID_POSITION, queue_ids[i])
        write_i64(dst, at + QUEUE_OFFSET_POSITION, queue_offsets[i])
        write_i64(dst, at + COMMIT_OFFSET_POSITION, offsets[i])
    # In a loop of its own: a CRC that loads what was stored just now waits for every store.
    for i in range(count):
        if rows[i, FEATURES] & HAS_PROPERTY_CRC:
            at = offsets[i] - dst_offset
            covered = sizes[i] - PROPERTY_CRC_SIZE
            write_crc_trailer(dst, at + covered, masked_crc(dst, at, covered))
    return i64(count)
