# ruff: noqa: ARG001, ARG005  numba gives every typing and lowering function the same arguments
"""Memory of a kernel's own.

Kernels are compiled without numba's reference counts (see ``jit``), so they cannot make arrays as
numba does. A scratch row lives on the kernel's stack; numbers that are too many for it come from the
C library's heap, and the kernel gives them back before it returns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.core import cgutils as numba_cgutils
from numba.extending import lower_builtin, type_callable
from numba.np.arrayobj import populate_array as numba_populate_array

from storage.kernels.columns import COLUMN_COUNT
from storage.kernels.primitives.jit import WRITABLE_INT64S, WRITABLE_ROWS, int64

cgutils: Any = numba_cgutils
populate_array: Any = numba_populate_array

_WORD = ir.IntType(64)
_WORD_SIZE = 8
_BYTE_POINTER = ir.IntType(8).as_pointer()


def scratch_row() -> npt.NDArray[np.int64]:
    """A row table of one row, its content undefined; gone when the kernel returns."""
    return np.empty((1, COLUMN_COUNT), np.int64)


def _type_of_scratch_row(context: Any) -> Any:
    return lambda: WRITABLE_ROWS


def _lower_scratch_row(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    place = cgutils.alloca_once(builder, ir.ArrayType(_WORD, COLUMN_COUNT))
    array = context.make_array(signature.return_type)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(place, _WORD.as_pointer()),
        shape=[_WORD(1), _WORD(COLUMN_COUNT)],
        strides=[_WORD(COLUMN_COUNT * _WORD_SIZE), _WORD(_WORD_SIZE)],
        itemsize=_WORD(_WORD_SIZE),
        meminfo=None,
    )
    return array._getvalue()


def new_longs(count: int) -> npt.NDArray[np.int64]:
    """``count`` > 0 numbers, their values undefined; to be given back by :func:`free_longs`."""
    return np.empty(count, np.int64)


def _type_of_new_longs(context: Any) -> Any:
    return lambda count: WRITABLE_INT64S


def _lower_new_longs(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    (count,) = arguments
    allocate = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_BYTE_POINTER, [_WORD]), "malloc"
    )
    place = builder.call(allocate, [builder.mul(count, _WORD(_WORD_SIZE))])
    with builder.if_then(cgutils.is_null(builder, place), likely=False):
        context.call_conv.return_user_exc(builder, MemoryError, ("a kernel's table",))
    array = context.make_array(signature.return_type)(context, builder)
    populate_array(
        array,
        data=builder.bitcast(place, _WORD.as_pointer()),
        shape=[count],
        strides=[_WORD(_WORD_SIZE)],
        itemsize=_WORD(_WORD_SIZE),
        meminfo=None,
    )
    return array._getvalue()


def free_longs(longs: Any) -> None:
    """Give back what :func:`new_longs` gave."""


def _type_of_free_longs(context: Any) -> Any:
    return lambda longs: types.none


def _lower_free_longs(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    give_back = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(ir.VoidType(), [_BYTE_POINTER]), "free"
    )
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    builder.call(give_back, [builder.bitcast(array.data, _BYTE_POINTER)])
    return context.get_dummy_value()


def _known_to_numba() -> None:
    typed: Any = type_callable
    lowered: Any = lower_builtin
    typed(scratch_row)(_type_of_scratch_row)
    lowered(scratch_row)(_lower_scratch_row)
    typed(new_longs)(_type_of_new_longs)
    lowered(new_longs, int64)(_lower_new_longs)
    typed(free_longs)(_type_of_free_longs)
    lowered(free_longs, WRITABLE_INT64S)(_lower_free_longs)


_known_to_numba()
