"""Big-endian numbers inside byte arrays, for kernels; the caller has bounded the position.

Positions are turned unsigned so that compiled code has no wrap-around branch and the compiler
joins the byte accesses into one load or store with a byte swap.
"""

from __future__ import annotations

from typing import Any

from storage.kernels.primitives.jit import i64, inner, u8, uintp


@inner
def read_u8(data: Any, position: int) -> int:
    """The byte at ``position``."""
    return i64(data[uintp(position)])


@inner
def read_i16(data: Any, position: int) -> int:
    """The big-endian signed 16-bit number at ``position``."""
    at = uintp(position)
    value = (i64(data[at]) << 8) | i64(data[at + uintp(1)])
    return (value ^ 0x8000) - 0x8000


@inner
def read_u32(data: Any, position: int) -> int:
    """The big-endian unsigned 32-bit number at ``position``."""
    at = uintp(position)
    return (
        (i64(data[at]) << 24)
        | (i64(data[at + uintp(1)]) << 16)
        | (i64(data[at + uintp(2)]) << 8)
        | i64(data[at + uintp(3)])
    )


@inner
def read_i32(data: Any, position: int) -> int:
    """The big-endian signed 32-bit number at ``position``."""
    return (read_u32(data, position) ^ 0x80000000) - 0x80000000


@inner
def read_i64(data: Any, position: int) -> int:
    """The big-endian signed 64-bit number at ``position``."""
    return (read_i32(data, position) << 32) | read_u32(data, position + 4)


@inner
def write_i16(data: Any, position: int, value: int) -> None:
    """Store ``value`` as 16 bits, big-endian."""
    at = uintp(position)
    data[at] = u8((value >> 8) & 0xFF)
    data[at + uintp(1)] = u8(value & 0xFF)


@inner
def write_i32(data: Any, position: int, value: int) -> None:
    """Store ``value`` as 32 bits, big-endian."""
    at = uintp(position)
    data[at] = u8((value >> 24) & 0xFF)
    data[at + uintp(1)] = u8((value >> 16) & 0xFF)
    data[at + uintp(2)] = u8((value >> 8) & 0xFF)
    data[at + uintp(3)] = u8(value & 0xFF)


@inner
def write_i64(data: Any, position: int, value: int) -> None:
    """Store ``value`` as 64 bits, big-endian."""
    write_i32(data, position, (value >> 32) & 0xFFFFFFFF)
    write_i32(data, position + 4, value & 0xFFFFFFFF)
