"""Kernels that turn the row table of a scan into the buffers of Arrow arrays.

Positions and lengths are checked against the array once more: they were read from disk. In text each broken
part of a UTF-8 sequence becomes one U+FFFD, which may take two bytes more than it.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.kernels.columns import (
    COLUMN_COUNT,
    FEATURES,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
)
from storage.kernels.primitives.crc import bytes_equal, copy_bytes
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
from storage.kernels.properties import is_utf8, property_ends, property_value, sequence_length

WRONG: Final = -1  # an argument does not fit, or a range is not inside the data
NO_ROOM: Final = -2  # the bytes do not fit; three times as many as the ranges have always do

WRITABLE_INT32S: Final = types.Array(types.int32, 1, "C")


@inner
def inside(data: Any, position: int, length: int) -> bool:
    """Whether ``data[position : position + length]`` exists."""
    return position >= 0 and length >= 0 and position <= data.size - length


@inner
def text_size(data: Any, position: int, end: int) -> int:
    """Bytes that a range takes as text."""
    if is_utf8(data, position, end):
        return i64(end - position)
    size = i64(0)
    while position < end:
        length = sequence_length(data, position, end)
        size += length if length > 0 else 3
        position += abs(length)
    return size


@inner
def write_text(dst: Any, at: int, data: Any, position: int, end: int, is_plain: bool) -> None:
    """Write a range as text; one that ``is_plain`` is not looked at."""
    if is_plain or is_utf8(data, position, end):
        copy_bytes(dst, at, data, position, end - position)
        return
    while position < end:
        length = sequence_length(data, position, end)
        if length > 0:
            copy_bytes(dst, at, data, position, length)
            at += length
        else:
            dst[uintp(at)] = u8(0xEF)
            dst[uintp(at + 1)] = u8(0xBF)
            dst[uintp(at + 2)] = u8(0xBD)
            at += 3
        position += abs(length)


@inner
def set_bit(bits: Any, index: int) -> None:
    """Set a bit of an Arrow bitmap."""
    bits[uintp(index >> 3)] |= u8(1 << (index & 7))


@kernel(
    int64(
        BYTES, ROWS, int64, int64, BYTES, int64, int64, WRITABLE_INT32S, WRITABLE_BYTES,
        WRITABLE_BYTES,
    )
)  # fmt: skip
def gather_column(
    data: Any, rows: Any, position_column: int, length_column: int, name: Any, feature: int,
    text: int, offsets: Any, present: Any, out: Any,
) -> int:  # fmt: skip
    """Join the ranges that two columns of the rows name; ``offsets`` become Arrow's.

    With a ``name`` the ranges are property blocks, which all have a property of that name; the last one's value
    is joined. With a ``feature`` (a HAS_* bit) only rows that have it count; ``present``, zeros before, becomes
    Arrow's bitmap of them. With ``text`` what is joined is text. Returns the bytes written, WRONG or NO_ROOM.
    """
    count = rows.shape[0]
    if (
        rows.shape[1] != COLUMN_COUNT
        or not 0 <= position_column < COLUMN_COUNT
        or not 0 <= length_column < COLUMN_COUNT
        or offsets.size < count + 1
        or (feature and present.size * 8 < count)
    ):
        return i64(WRONG)
    total = i64(0)
    offsets[0] = 0
    for i in range(count):
        if feature == 0 or rows[i, FEATURES] & feature:
            position = rows[i, position_column]
            length = rows[i, length_column]
            if not inside(data, position, length):
                return i64(WRONG)
            if name.size > 0:
                position, length = property_value(data, position, length, name)
                if position < 0:
                    return i64(WRONG)
            end = position + length
            size = text_size(data, position, end) if text else length
            if total + size > out.size:
                return i64(NO_ROOM)
            write_text(out, total, data, position, end, text == 0)
            total += size
            if feature:
                set_bit(present, i64(i))
        offsets[i + 1] = total
    return total


@inner
def place_of_name(names: Any, offsets: Any, first: int, end: int, at: int, size: int) -> int:
    """Number of the pair from ``first`` on that has the name at ``at`` of ``names``; ``end`` if none has."""
    for pair in range(first, end):
        start = i64(offsets[pair])
        if offsets[pair + 1] - start == size and bytes_equal(names, start, names, at, size):
            return i64(pair)
    return i64(end)


@kernel(
    int64(
        BYTES, ROWS, int64, WRITABLE_INT32S, WRITABLE_INT32S, WRITABLE_BYTES, WRITABLE_INT32S,
        WRITABLE_BYTES,
    )
)  # fmt: skip
def gather_pairs(
    data: Any, rows: Any, raw_values: int, pair_offsets: Any, name_offsets: Any, names: Any,
    value_offsets: Any, values: Any,
) -> int:  # fmt: skip
    """Part the properties of each row into pairs and join all names and all values.

    Names are text, values too but for ``raw_values``. Of equal names of a record the last value counts, at the
    first one's place. ``pair_offsets`` has one more place than rows; those of names and values one more than
    pairs. Returns the number of pairs, WRONG or NO_ROOM.
    """
    count = rows.shape[0]
    if rows.shape[1] != COLUMN_COUNT or pair_offsets.size < count + 1:
        return i64(WRONG)
    capacity = min(name_offsets.size, value_offsets.size) - 1
    if capacity < 0:
        return i64(WRONG)
    pairs = i64(0)
    name_total = i64(0)
    value_total = i64(0)
    pair_offsets[0] = 0
    name_offsets[0] = 0
    value_offsets[0] = 0
    for i in range(count):
        begin = rows[i, PROPERTIES_POSITION]
        if not inside(data, begin, rows[i, PROPERTIES_LENGTH]):
            return i64(WRONG)
        end = begin + rows[i, PROPERTIES_LENGTH]
        high = u8(0)
        for k in range(begin, end):
            high |= data[uintp(k)]
        is_plain = high < 0x80
        first = pairs
        while begin < end:
            separator, at = property_ends(data, begin, end)
            if begin < separator and separator + 1 < at:
                value = separator + 1
                name_size = separator - begin
                value_size = at - value
                value_is_plain = is_plain or raw_values != 0
                if not is_plain:
                    name_size = text_size(data, begin, separator)
                if not value_is_plain:
                    value_size = text_size(data, value, at)
                if pairs >= capacity:
                    return i64(WRONG)
                if name_total + name_size > names.size or value_total + value_size > values.size:
                    return i64(NO_ROOM)
                write_text(names, name_total, data, begin, separator, is_plain)
                place = place_of_name(names, name_offsets, first, pairs, name_total, name_size)
                start = i64(value_offsets[place])
                if place == pairs:
                    pairs += 1
                    name_total += name_size
                    name_offsets[pairs] = name_total
                    value_total += value_size
                    value_offsets[pairs] = value_total
                else:
                    after = i64(value_offsets[place + 1])
                    moved = value_size - (after - start)
                    copy_bytes(values, after + moved, values, after, value_total - after)
                    value_total += moved
                    for later in range(place + 1, pairs + 1):
                        value_offsets[later] += moved
                write_text(values, start, data, value, at, value_is_plain)
            begin = at + 1
        pair_offsets[i + 1] = pairs
    return pairs
