"""Kernels that make the buffers of several Arrow arrays in one pass over the rows of a scan.

They serve what is nearly always there: text that is UTF-8, names of properties that are unique within
a record. Where something else is met they say so with OTHER, and ``storage.kernels.arrow.columnar`` does
the work instead, slower.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.record_layout import (
    BODY_CRC_POSITION,
    BORN_TIMESTAMP_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.arrow.columnar import WRITABLE_INT32S, inside
from storage.kernels.columns import (
    COLUMN_COUNT,
    COMMIT_OFFSET,
    FEATURES,
    HAS_TAGS,
    POSITION,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    STORE_TIMESTAMP,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64
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
from storage.kernels.properties import is_utf8, property_ends, property_value

WRONG: Final = -1  # an argument does not fit, or a range is not inside the data
OTHER: Final = -2  # broken UTF-8, or a name that comes twice in one record

WRITABLE_INTS: Final = types.Array(types.int32, 2, "C")
WRITABLE_LONGS: Final = types.Array(types.int64, 2, "C")

FLAG_POSITION: Final = 16

INT_QUEUE_ID: Final = 0
INT_SIZE: Final = 1
INT_SYS_FLAG: Final = 2
INT_FLAG: Final = 3
INT_BODY_CRC: Final = 4
INT_RECONSUME_TIMES: Final = 5
INT_COUNT: Final = 6

LONG_QUEUE_OFFSET: Final = 0
LONG_COMMIT_OFFSET: Final = 1
LONG_BORN_TIMESTAMP: Final = 2
LONG_STORE_TIMESTAMP: Final = 3
LONG_PREPARED_OFFSET: Final = 4
LONG_COUNT: Final = 5


@inner
def set_bit(bits: Any, index: int) -> None:
    """Set a bit of an Arrow bitmap."""
    bits[uintp(index >> 3)] |= u8(1 << (index & 7))


@kernel(int64(BYTES, ROWS, WRITABLE_INTS, WRITABLE_LONGS))
def read_numbers(data: Any, rows: Any, ints: Any, longs: Any) -> int:
    """Fill ``ints`` (INT_COUNT x rows) and ``longs`` (LONG_COUNT x rows); times in microseconds.

    Returns the number of rows, WRONG if an argument does not fit.
    """
    count = rows.shape[0]
    if (
        rows.shape[1] != COLUMN_COUNT
        or ints.shape[0] < INT_COUNT
        or longs.shape[0] < LONG_COUNT
        or ints.shape[1] < count
        or longs.shape[1] < count
    ):
        return i64(WRONG)
    for i in range(count):
        position = rows[i, POSITION]
        after = rows[i, STORE_TIMESTAMP_POSITION] + 8
        after += IPV6_HOST_SIZE if rows[i, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6 else IPV4_HOST_SIZE
        if not inside(data, position, i64(BORN_TIMESTAMP_POSITION + 8)):
            return i64(WRONG)
        if not inside(data, after, i64(12)):
            return i64(WRONG)
        ints[INT_QUEUE_ID, i] = rows[i, QUEUE_ID]
        ints[INT_SIZE, i] = rows[i, SIZE]
        ints[INT_SYS_FLAG, i] = rows[i, SYS_FLAG]
        ints[INT_FLAG, i] = read_i32(data, position + FLAG_POSITION)
        ints[INT_BODY_CRC, i] = read_i32(data, position + BODY_CRC_POSITION)
        ints[INT_RECONSUME_TIMES, i] = read_i32(data, after)
        longs[LONG_QUEUE_OFFSET, i] = rows[i, QUEUE_OFFSET]
        longs[LONG_COMMIT_OFFSET, i] = rows[i, COMMIT_OFFSET]
        longs[LONG_BORN_TIMESTAMP, i] = read_i64(data, position + BORN_TIMESTAMP_POSITION) * 1000
        longs[LONG_STORE_TIMESTAMP, i] = rows[i, STORE_TIMESTAMP] * 1000
        longs[LONG_PREPARED_OFFSET, i] = read_i64(data, after + 4)
    return i64(count)


@kernel(
    int64(BYTES, ROWS, int64, int64, int64, int64, WRITABLE_INT32S, WRITABLE_BYTES, WRITABLE_BYTES)
)
def gather_column(
    data: Any, rows: Any, position_column: int, length_column: int, feature: int, text: int,
    offsets: Any, present: Any, out: Any,
) -> int:  # fmt: skip
    """Join the ranges that two columns of the rows name; ``offsets`` become Arrow's.

    With a ``feature`` (a HAS_* bit) only rows that have it count; ``present``, zeros before, becomes
    Arrow's bitmap of them. With ``text`` every range must be UTF-8. Returns the bytes written, WRONG
    or OTHER.
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
            if not inside(data, position, length) or total + length > out.size:
                return i64(WRONG)
            if text and not is_utf8(data, position, position + length):
                return i64(OTHER)
            copy_bytes(out, total, data, position, length)
            total += length
            if feature:
                set_bit(present, i64(i))
        offsets[i + 1] = total
    return total


@kernel(int64(BYTES, ROWS, BYTES, WRITABLE_INT32S, WRITABLE_BYTES, WRITABLE_BYTES))
def gather_tags(data: Any, rows: Any, name: Any, offsets: Any, present: Any, out: Any) -> int:
    """Join the tags of the rows that have one, like :func:`gather_column`; the last one counts."""
    count = rows.shape[0]
    if rows.shape[1] != COLUMN_COUNT or offsets.size < count + 1 or present.size * 8 < count:
        return i64(WRONG)
    total = i64(0)
    offsets[0] = 0
    for i in range(count):
        if rows[i, FEATURES] & HAS_TAGS:
            block, size = rows[i, PROPERTIES_POSITION], rows[i, PROPERTIES_LENGTH]
            if not inside(data, block, size):
                return i64(WRONG)
            found, length = property_value(data, block, size, name)
            if found >= 0:
                if total + length > out.size:
                    return i64(WRONG)
                if not is_utf8(data, found, found + length):
                    return i64(OTHER)
                copy_bytes(out, total, data, found, length)
                total += length
                set_bit(present, i64(i))
        offsets[i + 1] = total
    return total


@kernel(
    int64(
        BYTES, ROWS, WRITABLE_INT32S, WRITABLE_INT32S, WRITABLE_BYTES, WRITABLE_INT32S,
        WRITABLE_BYTES,
    )
)  # fmt: skip
def gather_pairs(
    data: Any, rows: Any, pair_offsets: Any, name_offsets: Any, names: Any, value_offsets: Any,
    values: Any,
) -> int:  # fmt: skip
    """Part the properties of each row into pairs and join all names and all values.

    ``pair_offsets`` has one more place than rows; those of names and values one more than pairs.
    Returns the number of pairs, WRONG if an array is too small, OTHER.
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
        first = pairs
        while begin < end:
            separator, at = property_ends(data, begin, end)
            length = separator - begin
            value_length = at - separator - 1
            if length > 0 and value_length > 0:
                if (
                    pairs >= capacity
                    or name_total + length > names.size
                    or value_total + value_length > values.size
                ):
                    return i64(WRONG)
                for pair in range(first, pairs):
                    start = i64(name_offsets[pair])
                    if name_offsets[pair + 1] - start == length and bytes_equal(
                        names, start, data, begin, length
                    ):
                        return i64(OTHER)
                if high >= 0x80 and not (
                    is_utf8(data, begin, separator) and is_utf8(data, separator + 1, at)
                ):
                    return i64(OTHER)
                copy_bytes(names, name_total, data, begin, length)
                copy_bytes(values, value_total, data, separator + 1, value_length)
                name_total += length
                value_total += value_length
                pairs += 1
                name_offsets[pairs] = name_total
                value_offsets[pairs] = value_total
            begin = at + 1
        pair_offsets[i + 1] = pairs
    return pairs
