"""Numbers in properties: decimal digits, as a broker writes them."""

from __future__ import annotations

from typing import Any, Final

from storage.format.properties import NAME_END, PROPERTY_END
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import i64, inner, u8, uintp
from storage.kernels.properties import property_value

ABSENT: Final = -1
DIGITS_MAX: Final = 15
_ZERO: Final = 0x30


@inner
def decimal_at(data: Any, position: int, length: int) -> int:
    """Value of decimal digits, ABSENT if there are none, other bytes among them, or more than 15."""
    if length < 1 or length > DIGITS_MAX:
        return i64(ABSENT)
    value = i64(0)
    for i in range(position, position + length):
        digit = read_u8(data, i) - _ZERO
        if digit < 0 or digit > 9:
            return i64(ABSENT)
        value = value * 10 + digit
    return value


@inner
def decimal_property(data: Any, position: int, length: int, name: Any) -> int:
    """Value of a block's property of digits, ABSENT where it is not one."""
    value, value_length = property_value(data, position, length, name)
    if value < 0:
        return i64(ABSENT)
    return decimal_at(data, value, value_length)


@inner
def decimal_size(value: int) -> int:
    """Return how many digits a number has that is not negative."""
    size = i64(1)
    rest = value // 10
    while rest > 0:
        size += 1
        rest //= 10
    return i64(size)


@inner
def write_decimal(dst: Any, at: int, value: int) -> int:
    """Write the digits of a number that is not negative; return the position after them."""
    size = decimal_size(value)
    rest = i64(value)
    for i in range(size):
        dst[uintp(at + size - 1 - i)] = u8(_ZERO + rest % 10)
        rest //= 10
    return i64(at + size)


@inner
def write_bytes_property(dst: Any, at: int, name: Any, src: Any, begin: int, size: int) -> int:
    """Write a property whose value are bytes of ``src``; return the position after it."""
    copy_bytes(dst, at, name, 0, name.size)
    at += name.size
    dst[uintp(at)] = u8(NAME_END)
    copy_bytes(dst, at + 1, src, begin, size)
    at += size + 1
    dst[uintp(at)] = u8(PROPERTY_END)
    return i64(at + 1)


@inner
def write_decimal_property(dst: Any, at: int, name: Any, value: int) -> int:
    """Write a property of digits; return the position after it."""
    copy_bytes(dst, at, name, 0, name.size)
    at += name.size
    dst[uintp(at)] = u8(NAME_END)
    at = write_decimal(dst, at + 1, value)
    dst[uintp(at)] = u8(PROPERTY_END)
    return i64(at + 1)
