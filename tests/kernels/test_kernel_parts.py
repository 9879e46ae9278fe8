"""What compiled kernels have and plain Python has not: masks of 64 bytes, and memory of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit, types

from storage.kernels.columns import COLUMN_COUNT
from storage.kernels.primitives.jit import BYTES, UNCOUNTED, int64, kernel, results
from storage.kernels.primitives.marks import (
    BLOCK,
    below_bit,
    from_bit,
    lowest,
    marks,
    without_lowest,
)
from storage.kernels.primitives.scratch import free_longs, new_longs, scratch_row

SOME_BYTES = st.lists(
    st.sampled_from((0, 1, 2, 3, 0x41, 0x7F, 0x80, 0x81, 0x82, 0xFF)), min_size=BLOCK, max_size=200
).map(bytes)


@kernel(results(types.uint64, 3)(BYTES, int64, int64))
def marks_of(data: Any, begin: int, end: int) -> Any:
    return marks(data, begin, end)


@kernel(results(types.uint64, 4)(types.uint64, int64))
def bits_of(mask: Any, number: int) -> Any:
    first = np.uint64(lowest(mask))
    return first, from_bit(mask, number), below_bit(mask, number), without_lowest(mask)


@kernel(int64(int64))
def sum_in_own_memory(count: int) -> int:
    longs, row = new_longs(count), scratch_row()
    for column in range(row.shape[1]):
        row[0, column] = column
    for i in range(count):
        longs[i] = i
    total = 0
    for i in range(longs.size):
        total += longs[i]
    for column in range(row.shape[1]):
        total += row[row.shape[0] - 1, column]
    free_longs(longs)
    return total


@given(SOME_BYTES, st.data())
@settings(max_examples=300, deadline=None)
def test_marks_are_those_of_the_bytes_wherever_the_array_ends(data: bytes, draws: Any) -> None:
    begin = draws.draw(st.integers(0, len(data) - 1))
    end = draws.draw(st.integers(begin + 1, len(data)))
    array = np.frombuffer(data, np.uint8)

    told = [int(mask) for mask in marks_of(array, begin, end)]

    block = data[begin : min(end, begin + BLOCK)]
    assert told == [
        sum(1 << i for i, byte in enumerate(block) if byte == 2),
        sum(1 << i for i, byte in enumerate(block) if byte == 1),
        sum(1 << i for i, byte in enumerate(block) if byte > 0x7F),
    ]
    assert told == [int(mask) for mask in marks_of.py_func(array, begin, end)]


@given(st.integers(1, (1 << 64) - 1), st.integers(0, BLOCK - 1))
@settings(max_examples=300, deadline=None)
def test_bits_of_a_mask(mask: int, number: int) -> None:
    told = [int(value) for value in bits_of(np.uint64(mask), number)]

    digits = f"{mask:064b}"[::-1]
    assert told[0] == digits.index("1")
    assert told[1] + told[2] == mask and told[2] == mask % (1 << number)
    assert told[3] == mask - (1 << told[0])
    assert told == [int(value) for value in bits_of.py_func(np.uint64(mask), number)]
    assert bits_of(np.uint64(0), number)[0] == BLOCK


def test_memory_of_a_kernel_is_as_long_as_asked_for() -> None:
    rest = COLUMN_COUNT * (COLUMN_COUNT - 1) // 2
    for count in (1, 2, 1_000, 1_000_000):
        wanted = count * (count - 1) // 2 + rest
        assert sum_in_own_memory(count) == sum_in_own_memory.py_func(count) == wanted


def test_numba_still_compiles_without_reference_counts() -> None:
    """Else it has renamed or dropped ``_nrt``: kernels are right, and slower by two atomics an array."""
    assert UNCOUNTED

    def first(data: Any) -> Any:
        return data[1:][0]

    counted = njit(int64(BYTES))(first).inspect_llvm()
    uncounted = njit(int64(BYTES), **UNCOUNTED)(first).inspect_llvm()
    assert ["NRT_" in code for found in (counted, uncounted) for code in found.values()] == [
        True,
        False,
    ]
