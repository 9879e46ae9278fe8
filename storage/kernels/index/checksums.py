"""The checksums of index files: sums of blocks of slots and entries (``format.index_checksums``).

Blocks are numbered from the first of slots to the last of entries. An empty array of sums stands for
a file without checksums.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from storage.format.index_checksums import (
    ENTRIES_PER_BLOCK,
    ENTRY_WORDS,
    MULTIPLIERS,
    SLOTS_PER_BLOCK,
    SUM_MASK,
    WORD_SIZE,
)
from storage.kernels.primitives.big_endian import read_u32
from storage.kernels.primitives.jit import BYTES, INT64S, WRITABLE_INT64S, i64, inner, int64, kernel

NO_SUMS: Final = np.empty(0, np.int64)
_MULTIPLIERS: Final = np.array(MULTIPLIERS, np.int64)


@inner
def word_term(word: int, value: int) -> int:
    """What a word adds to the sum of its block; ``value`` may be a difference of two words."""
    return value * i64(_MULTIPLIERS[word])


@inner
def masked_sum(total: int) -> int:
    """A sum in the range of sums."""
    return total & SUM_MASK


@inner
def words_sum(file: Any, position: int, begin: int, end: int) -> int:
    """The sum of words ``[begin, end)`` of the block at ``position``; they lie in the file."""
    total = i64(0)
    for word in range(begin, end):
        total += read_u32(file, position + WORD_SIZE * word) * _MULTIPLIERS[word]
    return total & SUM_MASK  # an overflow does not change it


@inner
def slot_blocks(slot_count: int) -> int:
    """How many blocks are of slots."""
    return (slot_count + SLOTS_PER_BLOCK - 1) // SLOTS_PER_BLOCK


@inner
def block_total(slot_count: int, entry_capacity: int) -> int:
    """How many blocks a file has."""
    return slot_blocks(slot_count) + (entry_capacity + ENTRIES_PER_BLOCK - 1) // ENTRIES_PER_BLOCK


@inner
def block_sum(file: Any, slot_count: int, entry_capacity: int, block: int) -> int:
    """The sum of a block as it is now; the file is as large as its shape says."""
    of_slots = slot_blocks(slot_count)
    if block < of_slots:
        first = block * SLOTS_PER_BLOCK
        count = min(i64(SLOTS_PER_BLOCK), slot_count - first)
        return words_sum(file, HEADER_SIZE + SLOT_SIZE * first, i64(0), count)
    first = (block - of_slots) * ENTRIES_PER_BLOCK
    count = min(i64(ENTRIES_PER_BLOCK), entry_capacity - first)
    position = HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * first
    return words_sum(file, position, i64(0), count * ENTRY_WORDS)


@inner
def shape_and_sums_fit(file: Any, slot_count: int, entry_capacity: int, sums: Any) -> bool:
    """Whether file and sums are as large as the shape says."""
    return (
        0 < slot_count < 1 << 40
        and 0 < entry_capacity < 1 << 31
        and HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry_capacity <= file.size
        and block_total(slot_count, entry_capacity) <= sums.size
    )


@kernel(int64(BYTES, int64, int64, int64, WRITABLE_INT64S))
def sum_blocks(file: Any, slot_count: int, entry_capacity: int, next_entry: int, sums: Any) -> int:
    """Fill ``sums`` of a file whose entries from ``next_entry`` on count as zeros.

    Returns the number of blocks, -1 if an argument does not fit.
    """
    if (
        not shape_and_sums_fit(file, slot_count, entry_capacity, sums)
        or not 1 <= next_entry <= entry_capacity
    ):
        return i64(-1)
    count = block_total(slot_count, entry_capacity)
    used = slot_blocks(slot_count) + (next_entry + ENTRIES_PER_BLOCK - 1) // ENTRIES_PER_BLOCK
    for block in range(used):
        sums[block] = block_sum(file, slot_count, entry_capacity, i64(block))
    for block in range(used, count):
        sums[block] = 0
    return count


@kernel(int64(BYTES, int64, int64, INT64S, int64, int64))
def find_bad_block(
    file: Any, slot_count: int, entry_capacity: int, sums: Any, begin: int, end: int
) -> int:
    """Return the first block in ``[begin, end)`` whose bytes do not have its sum; -1 if all have.

    -2 if an argument does not fit.
    """
    if (
        not shape_and_sums_fit(file, slot_count, entry_capacity, sums)
        or begin < 0
        or end > block_total(slot_count, entry_capacity)
    ):
        return i64(-2)
    for block in range(begin, end):
        if block_sum(file, slot_count, entry_capacity, i64(block)) != sums[block]:
            return i64(block)
    return i64(-1)


@kernel(int64(BYTES, int64, int64, int64))
def tail_sum(file: Any, slot_count: int, entry_capacity: int, next_entry: int) -> int:
    """Return the sum of the entries before ``next_entry`` in the block that it stands in.

    -1 if an argument does not fit.
    """
    if (
        not 0 < slot_count < 1 << 40
        or not 0 < next_entry <= entry_capacity < 1 << 31
        or HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry_capacity > file.size
    ):
        return i64(-1)
    first = next_entry // ENTRIES_PER_BLOCK * ENTRIES_PER_BLOCK
    position = HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * first
    return words_sum(file, position, i64(0), (next_entry - first) * ENTRY_WORDS)
