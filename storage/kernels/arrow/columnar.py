"""Kernels that turn the row table of a scan into the buffers of Arrow arrays.

All of them take positions and lengths as the scan found them and check them against the array once
more: what a unit or a property block says is data from disk.
"""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.kernels.columns import COLUMN_COUNT, SIZE, STOP_END, STOP_SIZE, STOP_TRUNCATED
from storage.kernels.primitives.crc import bytes_equal, copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    WRITABLE_ROWS,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)
from storage.kernels.primitives.text import write_hex, write_hex_bytes
from storage.kernels.properties import is_utf8, property_ends, property_value, sequence_length
from storage.kernels.scan import check_record

WRITABLE_INT32S: Final = types.Array(types.int32, 1, "C")
NONE: Final = -1  # in place of a position: the record has no such property


@inner
def inside(data: Any, position: int, length: int) -> bool:
    """Whether ``data[position : position + length]`` exists."""
    return position >= 0 and length >= 0 and position <= data.size - length


@kernel(int64(BYTES, INT64S, INT64S, WRITABLE_INT32S, WRITABLE_BYTES))
def gather_bytes(data: Any, positions: Any, lengths: Any, offsets: Any, out: Any) -> int:
    """Join the ranges in ``out``; ``offsets`` (one more than ranges) become Arrow's offsets.

    A range at NONE is empty. Returns the bytes written, -1 if an array is too small or a range is
    not inside ``data``.
    """
    if lengths.size < positions.size or offsets.size < positions.size + 1:
        return i64(-1)
    total = i64(0)
    offsets[0] = 0
    for i in range(positions.size):
        position = positions[i]
        if position != NONE:
            length = lengths[i]
            if not inside(data, position, length) or total + length > out.size:
                return i64(-1)
            copy_bytes(out, total, data, position, length)
            total += length
        offsets[i + 1] = total
    return total


@kernel(int64(BYTES, INT64S, INT64S))
def text_size(data: Any, positions: Any, lengths: Any) -> int:
    """Bytes that :func:`gather_text` needs; -1 if a range is not inside ``data``."""
    if lengths.size < positions.size:
        return i64(-1)
    total = i64(0)
    for i in range(positions.size):
        position = positions[i]
        if position == NONE:
            continue
        if not inside(data, position, lengths[i]):
            return i64(-1)
        end = position + lengths[i]
        if is_utf8(data, position, end):
            total += lengths[i]
            continue
        while position < end:
            size = sequence_length(data, position, end)
            total += size if size > 0 else 3
            position += abs(size)
    return total


@kernel(int64(BYTES, INT64S, INT64S, WRITABLE_INT32S, WRITABLE_BYTES))
def gather_text(data: Any, positions: Any, lengths: Any, offsets: Any, out: Any) -> int:
    """Like :func:`gather_bytes`; each broken part of a UTF-8 sequence becomes one U+FFFD."""
    if lengths.size < positions.size or offsets.size < positions.size + 1:
        return i64(-1)
    total = i64(0)
    offsets[0] = 0
    for i in range(positions.size):
        position = positions[i]
        if position != NONE:
            length = lengths[i]
            if not inside(data, position, length):
                return i64(-1)
            if is_utf8(data, position, position + length):
                if total + length > out.size:
                    return i64(-1)
                copy_bytes(out, total, data, position, length)
                total += length
            else:
                end = position + length
                while position < end:
                    size = sequence_length(data, position, end)
                    if total + max(size, 3) > out.size:
                        return i64(-1)
                    if size > 0:
                        copy_bytes(out, total, data, position, size)
                        total += size
                        position += size
                    else:
                        out[uintp(total)] = u8(0xEF)
                        out[uintp(total + 1)] = u8(0xBF)
                        out[uintp(total + 2)] = u8(0xBD)
                        total += 3
                        position -= size
        offsets[i + 1] = total
    return total


@kernel(int64(BYTES, INT64S, INT64S, BYTES, WRITABLE_INT64S, WRITABLE_INT64S))
def find_property(
    data: Any, positions: Any, lengths: Any, name: Any, out_positions: Any, out_lengths: Any
) -> int:
    """Find the value of one property in each block; the last of equal names counts.

    Where there is none the position is NONE and the length 0. Returns how many were found, -1 if an
    argument does not fit.
    """
    count = positions.size
    if lengths.size < count or out_positions.size < count or out_lengths.size < count:
        return i64(-1)
    found = i64(0)
    for i in range(count):
        if not inside(data, positions[i], lengths[i]):
            return i64(-1)
        out_positions[i], out_lengths[i] = property_value(data, positions[i], lengths[i], name)
        if out_positions[i] != NONE:
            found += 1
    return found


@kernel(
    int64(
        BYTES, INT64S, INT64S, WRITABLE_INT32S, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S,
        WRITABLE_INT64S,
    )
)  # fmt: skip
def split_properties(
    data: Any, positions: Any, lengths: Any, pair_offsets: Any, name_positions: Any,
    name_lengths: Any, value_positions: Any, value_lengths: Any,
) -> int:  # fmt: skip
    """Part each block into its pairs; of equal names the last value counts, at the first's place.

    ``pair_offsets`` (one more than blocks) become Arrow's list offsets. Returns the number of pairs,
    -1 if an array is too small or a block is not inside ``data``.
    """
    if lengths.size < positions.size or pair_offsets.size < positions.size + 1:
        return i64(-1)
    capacity = min(name_positions.size, name_lengths.size, value_positions.size, value_lengths.size)
    pairs = i64(0)
    pair_offsets[0] = 0
    for i in range(positions.size):
        if not inside(data, positions[i], lengths[i]):
            return i64(-1)
        first = pairs
        begin = positions[i]
        end = begin + lengths[i]
        while begin < end:
            separator, at = property_ends(data, begin, end)
            length = separator - begin
            if length > 0 and separator + 1 < at:
                place = first
                while place < pairs and not (
                    name_lengths[place] == length
                    and bytes_equal(data, name_positions[place], data, begin, length)
                ):
                    place += 1
                if place >= capacity:
                    return i64(-1)
                name_positions[place] = begin
                name_lengths[place] = length
                value_positions[place] = separator + 1
                value_lengths[place] = at - separator - 1
                if place == pairs:
                    pairs += 1
            begin = at + 1
        pair_offsets[i + 1] = pairs
    return pairs


@kernel(int64(BYTES, INT64S, INT64S, WRITABLE_INT32S, WRITABLE_INT64S))
def number_hosts(data: Any, positions: Any, lengths: Any, numbers: Any, firsts: Any) -> int:
    """Number the distinct hosts in order of appearance; ``firsts[n]`` is the first row of host n.

    Returns how many there are, -1 if an argument does not fit or, telling nothing else, if ``firsts``
    is too small for them.
    """
    if lengths.size < positions.size or numbers.size < positions.size:
        return i64(-1)
    distinct = i64(0)
    for i in range(positions.size):
        if not inside(data, positions[i], lengths[i]):
            return i64(-1)
        number = distinct - 1  # runs of one host are the rule, so the newest is tried first
        while number >= 0:
            row = firsts[number]
            if lengths[row] == lengths[i] and bytes_equal(
                data, positions[row], data, positions[i], lengths[i]
            ):
                break
            number -= 1
        if number < 0:
            if distinct >= firsts.size:
                return i64(-1)
            number = distinct
            firsts[number] = i
            distinct += 1
        numbers[i] = number
    return distinct


@kernel(int64(BYTES, INT64S, INT64S, INT64S, WRITABLE_INT32S, WRITABLE_BYTES))
def message_ids(
    data: Any, host_positions: Any, host_lengths: Any, commit_offsets: Any, offsets: Any, out: Any
) -> int:
    """Write offset message ids as text: store host and commit offset, upper-case hexadecimal.

    Returns the bytes written, -1 if an argument does not fit.
    """
    count = host_positions.size
    if host_lengths.size < count or commit_offsets.size < count or offsets.size < count + 1:
        return i64(-1)
    total = i64(0)
    offsets[0] = 0
    for i in range(count):
        length = host_lengths[i]
        if not inside(data, host_positions[i], length) or total + 2 * length + 16 > out.size:
            return i64(-1)
        host = host_positions[i]
        total = write_hex_bytes(out, total, data, host, host + length)
        write_hex(out, total, commit_offsets[i], i64(16))
        total += 16
        offsets[i + 1] = total
    return total


@kernel(int64(BYTES, int64, INT64S, INT64S, int64, WRITABLE_ROWS, WRITABLE_INT64S))
def check_units(
    data: Any, data_offset: int, commit_offsets: Any, sizes: Any, checks: int, rows: Any, stops: Any
) -> int:
    """Check the record that each unit points to and fill its row.

    ``data_offset`` is the commit offset of ``data[0]``. ``stops[i]`` becomes END for a good record of
    the unit's size; ``rows[i]`` is whole only then. Returns the number of good ones, -1 if an array
    is too small.
    """
    count = commit_offsets.size
    if sizes.size < count or rows.shape[0] < count or stops.size < count:
        return i64(-1)
    if rows.shape[1] != COLUMN_COUNT:
        return i64(-1)
    good = i64(0)
    for i in range(count):
        position = commit_offsets[i] - data_offset
        if not inside(data, position, sizes[i]) or sizes[i] == 0:
            stops[i] = STOP_TRUNCATED
            continue
        stop = check_record(data, position, position + sizes[i], commit_offsets[i], checks, rows, i)
        if stop == STOP_END and rows[i, SIZE] != sizes[i]:
            stop = STOP_SIZE
        stops[i] = stop
        if stop == STOP_END:
            good += 1
    return good
