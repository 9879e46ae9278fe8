# ruff: noqa: ARG001  numba matches the arguments of an overload by name
"""The separators of a property block, found 64 bytes at a time.

One comparison of a 64-byte vector gives a 64-bit mask, whose set bits are then taken one by one from
the lowest. The vectors are those of LLVM, which makes of them what the processor has: one instruction
or several, the same answer. Masks are ``np.uint64`` in kernels and in plain Python alike.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

from storage.format.properties import NAME_END, PROPERTY_END
from storage.kernels.primitives.jit import INLINED, i64, inner, results, uintp

BLOCK: Final = 64

_ALL: Final = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_ONE: Final = np.uint64(1)


def _block_masks(typing_context: Any, data: Any, position: Any) -> Any:
    """Three masks of the 64 bytes at ``position``, which must exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        bytes_type = ir.VectorType(ir.IntType(8), BLOCK)
        at = builder.bitcast(builder.gep(array.data, [arguments[1]]), bytes_type.as_pointer())
        block = builder.load(at)
        block.align = 1
        masks = []
        for comparison, byte in (("==", PROPERTY_END), ("==", NAME_END), (">", 0x7F)):
            wanted = ir.Constant(bytes_type, [byte] * BLOCK)
            found = builder.icmp_unsigned(comparison, block, wanted)
            masks.append(builder.bitcast(found, ir.IntType(BLOCK)))
        return context.make_tuple(builder, signature.return_type, masks)

    return results(types.uint64, 3)(data, position), generate


_marks_of_block: Any = intrinsic(_block_masks)


def lowest(mask: Any) -> int:
    """Number of the lowest bit that is set, 64 if none is."""
    number = int(mask)
    return i64((number & -number).bit_length() - 1 if number else BLOCK)


def _count_trailing_zeros(typing_context: Any, mask: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


_trailing_zeros: Any = intrinsic(_count_trailing_zeros)


@overload(lowest, jit_options=INLINED)
def _lowest(mask: Any) -> Any:
    def compiled(mask: Any) -> Any:
        return _trailing_zeros(mask)

    return compiled


@inner
def without_lowest(mask: Any) -> Any:
    """The mask without its lowest bit; one must be set."""
    return mask & (mask - _ONE)


@inner
def from_bit(mask: Any, number: int) -> Any:
    """The bits of the mask from ``number`` < 64 on."""
    return mask & (_ALL << np.uint64(number))


@inner
def below_bit(mask: Any, number: int) -> Any:
    """The bits of the mask below ``number`` < 64."""
    return mask & ~(_ALL << np.uint64(number))


def marks(data: Any, position: int, end: int) -> tuple[Any, Any, Any]:
    """Masks of 0x02, of 0x01, and of bytes above 0x7F in up to 64 bytes of ``data[position:end]``.

    Bit i is that of the byte at ``position + i``. The range must exist and not be empty, and ``data``
    must be no shorter than a block, as nothing with a whole record in it is.
    """
    block = bytes(data[position : min(end, position + BLOCK)])

    def mask(which: Any) -> Any:
        return np.uint64(sum(1 << i for i, byte in enumerate(block) if which(byte)))

    return (
        mask(lambda byte: byte == PROPERTY_END),
        mask(lambda byte: byte == NAME_END),
        mask(lambda byte: byte > 0x7F),
    )


@overload(marks, jit_options=INLINED)
def _marks(data: Any, position: int, end: int) -> Any:
    def compiled(data: Any, position: int, end: int) -> Any:
        count = i64(end - position)
        if position + BLOCK <= data.size:
            ends, separators, high = _marks_of_block(data, uintp(position))
            if count < BLOCK:
                ends = below_bit(ends, count)
                separators = below_bit(separators, count)
                high = below_bit(high, count)
            return ends, separators, high
        # The last 64 bytes of the array hold the range at their end.
        ends, separators, high = _marks_of_block(data, uintp(data.size - BLOCK))
        shift = np.uint64(position - (data.size - BLOCK))
        return (
            below_bit(ends >> shift, count),
            below_bit(separators >> shift, count),
            below_bit(high >> shift, count),
        )

    return compiled
