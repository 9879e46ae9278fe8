"""Protobuf's numbers as bytes, where client and services frame messages by hand."""

from __future__ import annotations


def varint(value: int) -> bytes:
    """Return a non-negative integer as protobuf writes it."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the integer of at most ten bytes at a position, and the position after it. Raises IndexError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return value, at
