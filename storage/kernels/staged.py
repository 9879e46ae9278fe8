"""Records of stages, known by their unique keys: checked when staged, found again in the log."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.stage import PREFIX_SIZE, SEQUENCE_SIZE, UNIQUE_KEY_SIZE
from storage.kernels.columns import COLUMN_COUNT, UNIQ_KEY_LENGTH, UNIQ_KEY_POSITION
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import (
    BYTES,
    INT64S,
    ROWS,
    WRITABLE_BYTES,
    i64,
    inner,
    int64,
    kernel,
    u8,
    uintp,
)

_NO_DIGIT: Final = 255
HEX_VALUE: Final = np.full(256, _NO_DIGIT, np.uint8)
HEX_VALUE[np.frombuffer(b"0123456789ABCDEF", np.uint8)] = np.arange(16, dtype=np.uint8)


@inner
def read_sequence(data: Any, position: int) -> int:
    """The number of the record after a stage's prefix; -1 if it is not one."""
    sequence = i64(0)
    for i in range(SEQUENCE_SIZE):
        digit = i64(HEX_VALUE[read_u8(data, position + i)])
        if digit == _NO_DIGIT:
            return i64(-1)
        sequence = sequence * 16 + digit
    return sequence


@inner
def compare_prefix(data: Any, position: int, prefixes: Any, index: int) -> int:
    """Below, at or above 0 as the prefix at ``position`` sorts before, at or after one of many."""
    start = index * PREFIX_SIZE
    for i in range(PREFIX_SIZE):
        difference = read_u8(data, position + i) - read_u8(prefixes, start + i)
        if difference != 0:
            return difference
    return i64(0)


@kernel(int64(BYTES, ROWS, int64, BYTES, int64))
def check_stage_keys(data: Any, rows: Any, count: int, prefix: Any, first_sequence: int) -> int:
    """Index of the first row whose unique key is not the stage's next one; -1 if all are.

    ``rows`` come from a scan of ``data``; row i must have ``prefix`` (24 bytes) and the number
    ``first_sequence + i``. -2 if the arguments do not fit.
    """
    if count > rows.shape[0] or rows.shape[1] != COLUMN_COUNT or prefix.size != PREFIX_SIZE:
        return i64(-2)
    for i in range(count):
        position = rows[i, UNIQ_KEY_POSITION]
        if (
            rows[i, UNIQ_KEY_LENGTH] != UNIQUE_KEY_SIZE
            or compare_prefix(data, position, prefix, i64(0)) != 0
            or read_sequence(data, position + PREFIX_SIZE) != first_sequence + i
        ):
            return i64(i)
    return i64(-1)


@kernel(int64(BYTES, ROWS, int64, BYTES, INT64S, INT64S, WRITABLE_BYTES))
def mark_staged(
    data: Any, rows: Any, count: int, prefixes: Any, bases: Any, sizes: Any, seen: Any
) -> int:
    """Mark in ``seen`` which records of stages rows ``[0, count)`` of ``data`` are.

    ``prefixes`` holds the stages' prefixes in ascending order, 24 bytes each; record number s of
    stage k is ``seen[bases[k] + s]``, and there are ``sizes[k]`` of them. Returns how many were
    marked that had not been before; -1 if the arguments do not fit.
    """
    stage_count = bases.size
    if (
        count > rows.shape[0]
        or rows.shape[1] != COLUMN_COUNT
        or sizes.size != stage_count
        or prefixes.size != stage_count * PREFIX_SIZE
    ):
        return i64(-1)
    for k in range(stage_count):
        if bases[k] < 0 or sizes[k] < 0 or bases[k] + sizes[k] > seen.size:
            return i64(-1)
    marked = i64(0)
    for i in range(count):
        if rows[i, UNIQ_KEY_LENGTH] != UNIQUE_KEY_SIZE:
            continue
        position = rows[i, UNIQ_KEY_POSITION]
        low = i64(0)
        high = i64(stage_count)
        while low < high:
            middle = (low + high) // 2
            if compare_prefix(data, position, prefixes, middle) > 0:
                low = middle + 1
            else:
                high = middle
        if low == stage_count or compare_prefix(data, position, prefixes, low) != 0:
            continue
        sequence = read_sequence(data, position + PREFIX_SIZE)
        if 0 <= sequence < sizes[low]:
            at = uintp(bases[low] + sequence)
            if seen[at] == 0:
                seen[at] = u8(1)
                marked += 1
    return marked
