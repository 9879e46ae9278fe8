"""SipHash-2-4, a keyed hash that nobody without the key can make."""

from __future__ import annotations

from typing import Any

import numpy as np

from storage.kernels.primitives.jit import BYTES, i64, inner, int64, kernel, uintp

_u64: Any = np.uint64


@inner
def rotated(value: Any, bits: int) -> Any:
    """The bits of an unsigned number, turned to the left."""
    return (value << _u64(bits)) | (value >> _u64(64 - bits))


@inner
def turned(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    """One round."""
    v0 = v0 + v1
    v1 = rotated(v1, 13) ^ v0
    v0 = rotated(v0, 32)
    v2 = v2 + v3
    v3 = rotated(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = rotated(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = rotated(v1, 17) ^ v2
    v2 = rotated(v2, 32)
    return v0, v1, v2, v3


@inner
def siphash(data: Any, position: int, size: int, key_low: int, key_high: int) -> int:
    """Hash of ``data[position : position + size]``, as a signed number; the range must exist."""
    low = _u64(key_low)
    high = _u64(key_high)
    v0 = low ^ _u64(0x736F6D6570736575)
    v1 = high ^ _u64(0x646F72616E646F6D)
    v2 = low ^ _u64(0x6C7967656E657261)
    v3 = high ^ _u64(0x7465646279746573)
    at = position
    left = size
    while left >= 8:
        word = _u64(0)
        for i in range(8):
            word |= _u64(data[uintp(at + i)]) << _u64(8 * i)
        v3 ^= word
        v0, v1, v2, v3 = turned(v0, v1, v2, v3)
        v0, v1, v2, v3 = turned(v0, v1, v2, v3)
        v0 ^= word
        at += 8
        left -= 8
    word = _u64(size & 0xFF) << _u64(56)
    for i in range(left):
        word |= _u64(data[uintp(at + i)]) << _u64(8 * i)
    v3 ^= word
    v0, v1, v2, v3 = turned(v0, v1, v2, v3)
    v0, v1, v2, v3 = turned(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= _u64(0xFF)
    for _ in range(4):
        v0, v1, v2, v3 = turned(v0, v1, v2, v3)
    return i64(v0 ^ v1 ^ v2 ^ v3)


@kernel(int64(BYTES, int64, int64))
def hash_of(data: Any, key_low: int, key_high: int) -> int:
    """SipHash-2-4 of ``data`` with a key of two little-endian halves."""
    return i64(siphash(data, i64(0), i64(data.size), key_low, key_high))
