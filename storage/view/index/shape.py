"""The number of slots and entries of a store's index files, where nothing says it.

A broker has both in its own configuration alone, and the size of a file allows many splits. Only one
of them lets the entries be found from the slots of their hashes, and that one is it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.config import StoreConfig
from storage.files.filesystem import ByteArray, ReadFileSystem
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from storage.view.index.index_file import IndexShape, list_index_files

CHECKED_ENTRIES: Final = 4_096
ENTRY: Final = np.dtype(
    [("hash", ">i4"), ("commit_offset", ">i8"), ("time_delta", ">i4"), ("previous", ">i4")]
)
SIZE_MIN: Final = HEADER_SIZE + SLOT_SIZE + 2 * ENTRY_SIZE
BROKER_SHAPE: Final = IndexShape(StoreConfig().index_slot_count, StoreConfig().index_entry_count)


def find_index_shape(filesystem: ReadFileSystem, directory: Path, likely: IndexShape) -> IndexShape:
    """Return the shape of the files in ``directory``; ``likely`` if one fits it, or none shows it."""
    sizes = [size for _, size, _ in list_index_files(filesystem, directory) if size >= SIZE_MIN]
    if not sizes or likely.file_size in sizes:
        return likely
    common = max(set(sizes), key=sizes.count)
    return shape_of_size(filesystem, directory, common) or likely


def shape_of_size(
    filesystem: ReadFileSystem, directory: Path, size: int, likely: Iterable[IndexShape] = ()
) -> IndexShape | None:
    """Return the shape of the files that are ``size`` bytes long, None if nothing shows it.

    It is one of ``likely`` if that fits. Else the entries show it, of the fullest file first: a
    damaged file may not, and one of the same length has the same shape.
    """
    for shape in likely:
        if shape.file_size == size:
            return shape
    counted = []
    for _, found, path in list_index_files(filesystem, directory):
        if found == size >= SIZE_MIN:
            file = filesystem.open(path, writable=False)
            counted.append((IndexHeader.decode(file.pread(HEADER_SIZE, 0)).next_entry, path))
            file.close()
    for _, path in sorted(counted, reverse=True):
        data = filesystem.map_ranges(path, 0)
        slot_count = deduce_slot_count(data)
        if slot_count:
            return IndexShape(
                slot_count, (size - HEADER_SIZE - SLOT_SIZE * slot_count) // ENTRY_SIZE
            )
    return None


def deduce_slot_count(file: ByteArray) -> int:
    """Return how many slots an index file has, deduced from its bytes; 0 if no number or several fit.

    The first and the last entry must point where the header says, and the newest ``CHECKED_ENTRIES`` entries must be
    reachable from the slots of their hashes.
    """
    if file.size < SIZE_MIN or (file.size - HEADER_SIZE) % SLOT_SIZE:
        return 0
    header = IndexHeader.decode(file[:HEADER_SIZE].tobytes())
    # However many slots there are, entries end with the file: entry 0 is one of these.
    count = (file.size - HEADER_SIZE) // ENTRY_SIZE
    entries = file[file.size - count * ENTRY_SIZE :].view(ENTRY)
    first = count - (file.size - HEADER_SIZE - SLOT_SIZE) // ENTRY_SIZE
    end = count - max(2, header.next_entry) + 1
    if header.next_entry < 2 or end <= first:
        return 0
    offsets, last = entries["commit_offset"], header.next_entry - 1
    is_likely = offsets[first + 1 : end + 1] == header.begin_commit_offset
    is_likely &= offsets[first + last : end + last] == header.end_commit_offset
    found = []
    for place in (first + np.flatnonzero(is_likely)).tolist():
        slots_end = file.size - (count - place) * ENTRY_SIZE
        if _hangs_together(file[HEADER_SIZE:slots_end].view(">i4"), entries[place:], last):
            found.append((slots_end - HEADER_SIZE) // SLOT_SIZE)
    return found[0] if len(found) == 1 else 0


def _hangs_together(slots: npt.NDArray[np.int32], entries: npt.NDArray[np.void], last: int) -> bool:
    """Whether the newest entries up to the ``last`` hang together with these slots."""
    numbers = np.arange(max(1, last + 1 - CHECKED_ENTRIES), last + 1)
    hashes, previous = entries["hash"][numbers], entries["previous"][numbers]
    slot_of = hashes % len(slots)
    newest = slots[slot_of]
    is_whole = (hashes >= 0) & (previous >= 0) & (previous < numbers)
    is_whole &= (newest >= numbers) & (newest <= last)
    linked = previous > 0
    return bool(
        is_whole.all() and (entries["hash"][previous[linked]] % len(slots) == slot_of[linked]).all()
    )
