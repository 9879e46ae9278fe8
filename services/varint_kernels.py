"""Protobuf's bytes for kernels: numbers and the heads of fields, read and written."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import i64, inner, u8, uintp

VARINT: Final = 0
FIXED64: Final = 1
DELIMITED: Final = 2
FIELDS_MAX: Final = (
    32  # field numbers that are looked up: those of a tag of one byte, and as many more
)
NOT_KNOWN: Final = -1


def by_field_number(places: dict[int, int]) -> Any:
    """Return a table for kernels: the place of each field number, NOT_KNOWN of those without one."""
    table = np.full(FIELDS_MAX, NOT_KNOWN, np.int64)
    for number, place in places.items():
        table[number] = place
    return table


@inner
def read_varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """``(value, position after it)`` of a varint in its shortest form below 2**63; or (0, -1)."""
    value = i64(0)
    shift = i64(0)
    while at < end and shift < 63:
        byte = read_u8(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                break
            return value, i64(at)
        shift += 7
    return i64(0), i64(-1)


@inner
def write_varint(dst: Any, at: int, value: int) -> int:
    """Write ``value`` as protobuf does, at most ten bytes; return the position after it."""
    while value & ~0x7F:
        dst[uintp(at)] = u8(value & 0x7F | 0x80)
        value = (value >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    dst[uintp(at)] = u8(value)
    return i64(at + 1)


@inner
def write_number(dst: Any, at: int, field: int, value: int) -> int:
    """Write a number's field, left out where it is 0; return the position after it."""
    if value == 0:
        return i64(at)
    return write_varint(dst, write_varint(dst, at, i64(field << 3 | VARINT)), value)


@inner
def write_delimited(dst: Any, at: int, field: int, size: int) -> int:
    """Write what goes before a field of ``size`` bytes; return the position after it."""
    return write_varint(dst, write_varint(dst, at, i64(field << 3 | DELIMITED)), size)
