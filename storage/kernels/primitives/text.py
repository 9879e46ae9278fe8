"""Texts that kernels look for, and numbers in decimal and hexadecimal digits."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import i64, inner, u8, uintp


def text_bytes(text: str) -> npt.NDArray[np.uint8]:
    """Return a text's UTF-8 as an array, for a constant of a kernel."""
    return np.frombuffer(text.encode(), np.uint8)


ABSENT: Final = -1
DIGITS_MAX: Final = 15
_ZERO: Final = 0x30
_HEX: Final = text_bytes("0123456789ABCDEF")


@inner
def write_hex(dst: Any, at: int, value: int, digits: int) -> None:
    """Write the last ``digits`` hexadecimal digits of ``value``, in upper case."""
    for i in range(digits):
        dst[uintp(at + digits - 1 - i)] = _HEX[uintp(value & 15)]
        value >>= 4


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
