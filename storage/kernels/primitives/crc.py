# ruff: noqa: ARG001  numba matches the arguments of an overload by name
"""CRC-32 (the zlib polynomial), byte copies, comparisons and searches, callable from kernels.

Compiled code calls ISA-L's ``crc32_gzip_refl`` in isal's extension module by a named symbol, which
keeps kernels cacheable; plain Python calls zlib, an independent implementation.
"""

from __future__ import annotations

import ctypes
import zlib
from typing import Any

import llvmlite.binding
import numpy as np
from isal import isal_zlib
from numba import types
from numba.extending import overload

from storage.format.property_crc import CRC_MASK
from storage.kernels.primitives.jit import INLINED, i64, uintp

_ISAL = ctypes.CDLL(isal_zlib.__file__)
llvmlite.binding.add_symbol(
    "penstock_crc32", ctypes.cast(_ISAL.crc32_gzip_refl, ctypes.c_void_p).value
)
_crc32_gzip_refl: Any = types.ExternalFunction(
    "penstock_crc32", types.uint32(types.uint32, types.uintp, types.uint64)
)
_memmove: Any = types.ExternalFunction(
    "memmove", types.uintp(types.uintp, types.uintp, types.uintp)
)
_memchr: Any = types.ExternalFunction("memchr", types.uintp(types.uintp, types.int32, types.uintp))
_memcmp: Any = types.ExternalFunction("memcmp", types.int32(types.uintp, types.uintp, types.uintp))


def masked_crc(data: Any, position: int, size: int) -> int:
    """CRC-32 of ``data[position : position + size]``, its sign bit cleared; the range must exist."""
    return i64(zlib.crc32(data[position : position + size]) & CRC_MASK)


@overload(masked_crc, jit_options=INLINED)
def _masked_crc(data: Any, position: int, size: int) -> Any:
    def compiled(data: Any, position: int, size: int) -> Any:
        crc = _crc32_gzip_refl(np.uint32(0), data.ctypes.data + uintp(position), np.uint64(size))
        return i64(crc) & CRC_MASK

    return compiled


def copy_bytes(dst: Any, dst_position: int, src: Any, src_position: int, size: int) -> None:
    """Copy ``size`` bytes between arrays; both ranges must exist and may overlap."""
    dst[dst_position : dst_position + size] = src[src_position : src_position + size]


@overload(copy_bytes, jit_options=INLINED)
def _copy_bytes(dst: Any, dst_position: int, src: Any, src_position: int, size: int) -> Any:
    def compiled(dst: Any, dst_position: int, src: Any, src_position: int, size: int) -> None:
        _memmove(
            dst.ctypes.data + uintp(dst_position),
            src.ctypes.data + uintp(src_position),
            uintp(size),
        )

    return compiled


def bytes_equal(left: Any, left_position: int, right: Any, right_position: int, size: int) -> bool:
    """Whether two ranges of ``size`` bytes are equal; both must exist."""
    return bytes(left[left_position : left_position + size]) == bytes(
        right[right_position : right_position + size]
    )


@overload(bytes_equal, jit_options=INLINED)
def _bytes_equal(left: Any, left_position: int, right: Any, right_position: int, size: int) -> Any:
    def compiled(left: Any, left_position: int, right: Any, right_position: int, size: int) -> bool:
        return bool(
            _memcmp(
                left.ctypes.data + uintp(left_position),
                right.ctypes.data + uintp(right_position),
                uintp(size),
            )
            == 0
        )

    return compiled


def find_byte(data: Any, begin: int, end: int, byte: int) -> int:
    """Position of the first ``byte`` in ``data[begin:end]``, which must exist; ``end`` if none."""
    found = bytes(data[begin:end]).find(byte)
    return i64(end if found < 0 else begin + found)


@overload(find_byte, jit_options=INLINED)
def _find_byte(data: Any, begin: int, end: int, byte: int) -> Any:
    def compiled(data: Any, begin: int, end: int, byte: int) -> int:
        start = data.ctypes.data + uintp(begin)
        found = _memchr(start, np.int32(byte), uintp(end - begin))
        return i64(end) if found == 0 else i64(begin) + i64(found - start)

    return compiled
