"""Property blocks and Java string hashes, walked straight in the bytes.

A block is name, 0x01, value, 0x02, over and over; the last 0x02 may be missing. A segment between
two 0x02 counts if its first 0x01 is not its first byte and at least one byte follows it. Of equal
names the last one counts. Both separators are ASCII, so no UTF-8 sequence, whole or broken, hides
one.

Java hashes strings over UTF-16 units. Units come from decoding UTF-8; every maximal part of a
broken sequence counts as one U+FFFD, as Python's ``errors="replace"`` has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from storage.format.properties import (
    CRC32,
    DELAY,
    INNER_MULTI_DISPATCH,
    KEYS,
    NAME_END,
    PROPERTY_END,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TRANSIENT_PREFIX,
    UNIQ_KEY,
)
from storage.format.property_crc import (
    PROPERTY_CRC_DIGITS,
    PROPERTY_CRC_SIZE,
    TRAILER_FIXED_RIGHT_MIN,
    TRAILER_RIGHT_MIN,
)
from storage.kernels.primitives.big_endian import read_i64, read_u8, write_i64
from storage.kernels.primitives.crc import find_byte, masked_crc
from storage.kernels.primitives.jit import i64, inner, u8, uintp
from storage.kernels.primitives.text import ABSENT, decimal_at, text_bytes

REPLACEMENT: Final = 0xFFFD

NAME_TAGS: Final = text_bytes(TAGS)
NAME_KEYS: Final = text_bytes(KEYS)
NAME_UNIQ_KEY: Final = text_bytes(UNIQ_KEY)
NAME_DELAY: Final = text_bytes(DELAY)
NAME_DELAY_MS: Final = text_bytes(TIMER_DELAY_MS)
NAME_DELIVER_MS: Final = text_bytes(TIMER_DELIVER_MS)
NAME_MULTI_DISPATCH: Final = text_bytes(INNER_MULTI_DISPATCH)
NAME_CRC: Final = text_bytes(CRC32)
_TRANSIENT: Final = text_bytes(TRANSIENT_PREFIX)
CRC_NAME_LENGTH: Final = len(CRC32)
_CRC_NAME: Final = int.from_bytes(CRC32.encode(), "big")
assert CRC_NAME_LENGTH == 8


@inner
def matches(data: Any, position: int, name: Any) -> bool:
    """Whether the bytes at ``position`` are ``name``; as many bytes must exist."""
    for i in range(name.size):  # noqa: SIM110  kernels have no generators
        if data[uintp(position + i)] != name[i]:
            return False
    return True


@inner
def sequence_length(data: Any, position: int, end: int) -> int:
    """Bytes of the UTF-8 sequence at ``position`` < ``end``; of a broken one, minus its length."""
    first = read_u8(data, position)
    if first < 0x80:
        return i64(1)
    low = i64(0x80)
    high = i64(0xBF)
    if 0xC2 <= first <= 0xDF:
        needed = i64(2)
    elif 0xE0 <= first <= 0xEF:
        needed = i64(3)
        if first == 0xE0:
            low = i64(0xA0)
        elif first == 0xED:
            high = i64(0x9F)
    elif 0xF0 <= first <= 0xF4:
        needed = i64(4)
        if first == 0xF0:
            low = i64(0x90)
        elif first == 0xF4:
            high = i64(0x8F)
    else:
        return i64(-1)
    length = i64(1)
    while length < needed:
        if position + length >= end:
            return -length
        following = read_u8(data, position + length)
        if following < low or following > high:
            return -length
        low = i64(0x80)
        high = i64(0xBF)
        length += 1
    return needed


@inner
def hash_step(hashed: int, unit: int) -> int:
    """One step of Java's string hash, kept unsigned in 32 bits."""
    return (hashed * 31 + unit) & 0xFFFFFFFF


@inner
def java_hash(data: Any, position: int, length: int, hashed: int) -> int:
    """Java's string hash (unsigned 32 bits) of UTF-8 bytes, going on from ``hashed``."""
    end = position + length
    while position < end:
        first = read_u8(data, position)
        if first < 0x80:
            hashed = hash_step(hashed, first)
            position += 1
            continue
        size = sequence_length(data, position, end)
        if size < 0:
            hashed = hash_step(hashed, i64(REPLACEMENT))
            position -= size
            continue
        if size == 2:
            point = ((first & 0x1F) << 6) | (read_u8(data, position + 1) & 0x3F)
        else:
            point = ((first & 0x0F) << 6) | (read_u8(data, position + 1) & 0x3F)
            point = (point << 6) | (read_u8(data, position + 2) & 0x3F)
        if size == 4:
            point = ((first & 0x07) << 12) | (point & 0xFFF)
            point = (point << 6) | (read_u8(data, position + 3) & 0x3F)
            hashed = hash_step(hashed, 0xD800 + ((point - 0x10000) >> 10))
            point = 0xDC00 + ((point - 0x10000) & 0x3FF)
        hashed = hash_step(hashed, point)
        position += size
    return hashed


@inner
def is_utf8(data: Any, position: int, end: int) -> bool:
    """Whether ``data[position:end]`` is well-formed UTF-8."""
    high = u8(0)
    for i in range(position, end):
        high |= data[uintp(i)]
    if high < 0x80:
        return True
    while position < end:
        size = sequence_length(data, position, end)
        if size < 0:
            return False
        position += size
    return True


@inner
def has_crc_trailer(data: Any, position: int, length: int) -> bool:
    """Whether the property block ends with a property CRC trailer, whatever its digits are."""
    if length < PROPERTY_CRC_SIZE:
        return False
    trailer = position + length - PROPERTY_CRC_SIZE
    return (
        read_u8(data, trailer + PROPERTY_CRC_SIZE - 1) == PROPERTY_END
        and read_u8(data, trailer + CRC_NAME_LENGTH) == NAME_END
        and read_i64(data, trailer) == _CRC_NAME
    )


@inner
def property_ends(data: Any, begin: int, end: int) -> tuple[int, int]:
    """Where the name of the property at ``begin`` ends, and where its value does; the same if it has no name.

    The next property begins a byte after that.
    """
    stop = find_byte(data, begin, end, PROPERTY_END)
    return find_byte(data, begin, stop, NAME_END), stop


@inner
def property_value(data: Any, position: int, length: int, name: Any) -> tuple[int, int]:
    """Position and length of the value of the last property called ``name``; (-1, 0) if none is."""
    value = i64(-1)
    value_length = i64(0)
    begin = i64(position)
    end = i64(position + length)
    while begin < end:
        stop = find_byte(data, begin, end, PROPERTY_END)
        separator = begin + name.size
        if (
            separator + 1 < stop
            and read_u8(data, separator) == NAME_END
            and matches(data, begin, name)
        ):
            value = separator + 1
            value_length = stop - separator - 1
        begin = stop + 1
    return value, value_length


@inner
def decimal_property(data: Any, position: int, length: int, name: Any) -> int:
    """Value of a block's property of digits, ABSENT where it is not one."""
    value, value_length = property_value(data, position, length, name)
    if value < 0:
        return i64(ABSENT)
    return decimal_at(data, value, value_length)


def reserved_names(names: Iterable[str]) -> Callable[[Any, int, int], bool]:
    """Return a function for kernels: whether ``length`` bytes at ``position`` are one of ``names``.

    Names that begin like the store's transient ones count, too. What is compared are the names of
    the same length: those of length n are numbers ``first[n]`` to ``first[n + 1]``.
    """
    encoded = sorted((name.encode() for name in names), key=len)
    data_of_names = np.frombuffer(b"".join(encoded), np.uint8)
    lengths = np.array([len(name) for name in encoded], np.int64)
    starts = np.concatenate(([0], np.cumsum(lengths)[:-1])).astype(np.int64)
    longest = int(lengths.max())
    first = np.searchsorted(lengths, np.arange(longest + 2)).astype(np.int64)

    @inner
    def is_reserved(data: Any, position: int, length: int) -> bool:
        if length <= longest:
            for i in range(first[uintp(length)], first[uintp(length + 1)]):
                start = starts[uintp(i)]
                equal = True
                for j in range(length):
                    if data[uintp(position + j)] != data_of_names[uintp(start + j)]:
                        equal = False
                        break
                if equal:
                    return True
        return length >= _TRANSIENT.size and matches(data, position, _TRANSIENT)

    return is_reserved


@inner
def eight_digits(number: int) -> int:
    """ASCII digits of a number below 10**8, the least significant in the highest byte.

    Halves are split at once: 10**4 in lanes of 32 bits, 100 in lanes of 16, 10 in lanes of 8 (the
    quotients by multiplication: 5243 / 2**19 and 103 / 2**10).
    """
    high = number // 10_000
    lanes = high + ((number - high * 10_000) << 32)
    high = ((lanes * 5243) >> 19) & 0x0000_007F_0000_007F
    lanes = high + ((lanes - high * 100) << 16)
    high = ((lanes * 103) >> 10) & 0x000F_000F_000F_000F
    return high + ((lanes - high * 10) << 8) + 0x3030_3030_3030_3030


@inner
def write_crc_trailer(data: Any, position: int, crc: int) -> None:
    """Write the 20 bytes of a trailer; digits stand least significant first."""
    write_i64(data, position, i64(_CRC_NAME))
    data[uintp(position + CRC_NAME_LENGTH)] = u8(NAME_END)
    digits = position + CRC_NAME_LENGTH + 1
    top = crc // 100_000_000
    write_i64(data, digits, eight_digits(crc - top * 100_000_000))
    tens = top // 10
    data[uintp(digits + 8)] = u8(0x30 + top - tens * 10)
    data[uintp(digits + 9)] = u8(0x30 + tens)
    data[uintp(position + PROPERTY_CRC_SIZE - 1)] = u8(PROPERTY_END)


@inner
def crc_trailer_tells(data: Any, position: int, crc: int) -> bool:
    """Whether the digits of the trailer at ``position`` are those of ``crc``."""
    digits = position + CRC_NAME_LENGTH + 1
    top = crc // 100_000_000
    tens = top // 10
    return (
        read_i64(data, digits) == eight_digits(crc - top * 100_000_000)
        and read_u8(data, digits + 8) == 0x30 + top - tens * 10
        and read_u8(data, digits + 9) == 0x30 + tens
    )


@inner
def trailer_is_damaged(data: Any, position: int, trailer: int) -> bool:
    """Whether a trailer stood at ``trailer``, the end of the record at ``position``.

    Only for 20 bytes that are not a trailer as they stand; the rule is that of ``storage.format.property_crc``.
    """
    fixed = i64(0)
    other_property = True
    for i in range(CRC_NAME_LENGTH):
        byte = read_u8(data, trailer + i)
        fixed += byte == NAME_CRC[i]
        other_property &= byte >= 0x20
    digits = i64(0)
    for i in range(CRC_NAME_LENGTH + 1, PROPERTY_CRC_SIZE - 1):
        byte = read_u8(data, trailer + i)
        digits += 0x30 <= byte <= 0x39
        other_property &= byte >= 0x20
    for i, terminator in ((CRC_NAME_LENGTH, NAME_END), (PROPERTY_CRC_SIZE - 1, PROPERTY_END)):
        right = read_u8(data, trailer + i) == terminator
        fixed += right
        other_property &= right
    if not other_property and fixed >= TRAILER_FIXED_RIGHT_MIN:
        return True
    if digits < PROPERTY_CRC_DIGITS and (other_property or fixed + digits < TRAILER_RIGHT_MIN):
        return False
    crc = masked_crc(data, position, trailer - position)
    digits = i64(0)
    for i in range(PROPERTY_CRC_DIGITS):
        digits += read_u8(data, trailer + CRC_NAME_LENGTH + 1 + i) == 0x30 + crc % 10
        crc //= 10
    return digits == PROPERTY_CRC_DIGITS or (
        not other_property and fixed + digits >= TRAILER_RIGHT_MIN
    )
