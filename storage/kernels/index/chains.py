"""Index files: the links between entries and slots, followed in one pass over a file."""

from __future__ import annotations

from typing import Any, Final

from numba import types

from storage.format.index import ENTRY_SIZE, HEADER_SIZE, PREVIOUS_IN_ENTRY, SLOT_SIZE
from storage.kernels.primitives.big_endian import read_i32
from storage.kernels.primitives.jit import BYTES, WRITABLE_INT64S, i64, int64, kernel, results

WRITABLE_INT32S: Final = types.Array(types.int32, 1, "C")


@kernel(results(int64, 2)(BYTES, int64, int64, WRITABLE_INT32S, WRITABLE_INT64S))
def follow_chains(
    file: Any, slot_count: int, entry_count: int, newest: Any, bad: Any
) -> tuple[int, int]:
    """Follow entries ``[1, entry_count]``: each must lead to the one before it in its slot.

    ``newest`` (zeros, one a slot) becomes the number that each slot should have; ``bad`` the first
    entries that lead elsewhere. Returns how many do, and how many slots are in use; ``(-1, -1)`` if
    an argument does not fit.
    """
    begin = HEADER_SIZE + SLOT_SIZE * slot_count
    if (
        slot_count <= 0
        or entry_count < 0
        or newest.size < slot_count
        or begin + ENTRY_SIZE * (entry_count + 1) > file.size
    ):
        return i64(-1), i64(-1)
    wrong = i64(0)
    used = i64(0)
    for entry in range(1, entry_count + 1):
        position = begin + ENTRY_SIZE * entry
        slot = (read_i32(file, position) & 0x7FFFFFFF) % slot_count
        before = newest[slot]
        if before == 0:
            used += 1
        if read_i32(file, position + PREVIOUS_IN_ENTRY) != before:
            if wrong < bad.size:
                bad[wrong] = entry
            wrong += 1
        newest[slot] = entry
    return wrong, used
