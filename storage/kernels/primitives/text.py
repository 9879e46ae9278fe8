"""Texts that kernels look for and write."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import i64, inner, uintp


def text_bytes(text: str) -> npt.NDArray[np.uint8]:
    """Return a text's UTF-8 as an array, for a constant of a kernel."""
    return np.frombuffer(text.encode(), np.uint8)


_HEX: Final = text_bytes("0123456789ABCDEF")


@inner
def write_hex(dst: Any, at: int, value: int, digits: int) -> None:
    """Write the last ``digits`` hexadecimal digits of ``value``, in upper case."""
    for i in range(digits):
        dst[uintp(at + digits - 1 - i)] = _HEX[uintp(value & 15)]
        value >>= 4


@inner
def write_hex_bytes(dst: Any, position: int, src: Any, begin: int, end: int) -> int:
    """Write bytes as upper-case digits; return the position after them."""
    for i in range(begin, end):
        byte = read_u8(src, i)
        dst[uintp(position)] = _HEX[uintp(byte >> 4)]
        dst[uintp(position + 1)] = _HEX[uintp(byte & 15)]
        position += 2
    return i64(position)
