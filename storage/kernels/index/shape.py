"""How many slots an index file has, deduced from its bytes: a broker writes that nowhere."""

from __future__ import annotations

from typing import Any

from storage.format.index import (
    BEGIN_COMMIT_OFFSET_POSITION,
    COMMIT_OFFSET_IN_ENTRY,
    END_COMMIT_OFFSET_POSITION,
    ENTRY_SIZE,
    HEADER_SIZE,
    NEXT_ENTRY_POSITION,
    PREVIOUS_IN_ENTRY,
    SLOT_SIZE,
)
from storage.kernels.primitives.big_endian import read_i32, read_i64
from storage.kernels.primitives.jit import BYTES, i64, inner, int64, kernel


@inner
def entry_at(file: Any, slot_count: int, entry: int) -> int:
    """Position of an entry in an index file; -1 if it does not lie in the file whole."""
    position = HEADER_SIZE + SLOT_SIZE * slot_count + ENTRY_SIZE * entry
    if entry < 1 or position + ENTRY_SIZE > file.size:
        return i64(-1)
    return position


@inner
def fits_slot_count(file: Any, slot_count: int, next_entry: int, entries_max: int) -> bool:
    """Whether the newest ``entries_max`` entries hang together with this many slots."""
    entry = i64(next_entry - 1)
    oldest = max(i64(1), next_entry - entries_max)
    while entry >= oldest:
        position = entry_at(file, slot_count, entry)
        if position < 0:
            return False
        key_hash = read_i32(file, position)
        previous = i64(read_i32(file, position + PREVIOUS_IN_ENTRY))
        if key_hash < 0 or previous < 0 or previous >= entry:
            return False
        slot = key_hash % slot_count
        newest = read_i32(file, HEADER_SIZE + SLOT_SIZE * slot)
        if newest < entry or newest >= next_entry:
            return False
        if previous > 0:
            before = entry_at(file, slot_count, previous)
            if read_i32(file, before) % slot_count != slot:
                return False
        entry -= 1
    return True


@kernel(int64(BYTES, int64))
def deduce_slot_count(file: Any, entries_max: int) -> int:
    """Return how many slots an index file has, deduced from its bytes; 0 if no number or several fit.

    The first and the last entry must point where the header says, and the newest ``entries_max``
    entries must be reachable from the slots of their hashes.
    """
    if file.size < HEADER_SIZE + SLOT_SIZE + 2 * ENTRY_SIZE:
        return i64(0)
    begin_commit_offset = read_i64(file, BEGIN_COMMIT_OFFSET_POSITION)
    end_commit_offset = read_i64(file, END_COMMIT_OFFSET_POSITION)
    next_entry = i64(read_i32(file, NEXT_ENTRY_POSITION))
    rest = (file.size - HEADER_SIZE) // SLOT_SIZE
    if next_entry < 2 or (file.size - HEADER_SIZE) % SLOT_SIZE:
        return i64(0)
    found = i64(0)
    entry_count = max(i64(2), next_entry)
    while True:
        slot_count = rest - 5 * entry_count
        if slot_count <= 0:
            return found
        entry_count += 1
        last = entry_at(file, slot_count, next_entry - 1)
        if last < 0 or read_i64(file, last + COMMIT_OFFSET_IN_ENTRY) != end_commit_offset:
            continue
        if (
            read_i64(file, entry_at(file, slot_count, i64(1)) + COMMIT_OFFSET_IN_ENTRY)
            != begin_commit_offset
        ):
            continue
        if fits_slot_count(file, slot_count, next_entry, entries_max):
            if found:
                return i64(0)
            found = slot_count
