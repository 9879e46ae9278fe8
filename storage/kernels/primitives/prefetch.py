# ruff: noqa: ARG001  numba gives every typing and lowering function the same arguments
"""Telling the processor what will be read soon: a hint, without an effect that can be seen."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import intrinsic, overload

from storage.kernels.primitives.jit import INLINED, uintp

cgutils: Any = numba_cgutils

CACHE_LINE: Final = 64  # bytes, of most processors


def prefetch(data: Any, position: int) -> None:
    """Begin to load the bytes around ``position``, which may be anywhere."""


def _prefetch_at(typing_context: Any, data: Any, position: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        number = ir.IntType(32)
        pointer = ir.IntType(8).as_pointer()
        hint = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [pointer, number, number, number]),
            "llvm.prefetch.p0",
        )
        place = builder.bitcast(builder.gep(array.data, [arguments[1]]), pointer)
        builder.call(hint, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(data, position), generate


_prefetch: Any = intrinsic(_prefetch_at)


@overload(prefetch, jit_options=INLINED)
def _prefetch_compiled(data: Any, position: int) -> Any:
    def compiled(data: Any, position: int) -> None:
        _prefetch(data, uintp(position))

    return compiled
