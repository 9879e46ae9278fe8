"""The number of slots and entries of a store's index files, where nothing says it.

A broker has both in its own configuration alone, and the size of a file allows many splits. Only one
of them lets the entries be found from the slots of their hashes, and that one is it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from storage.config import StoreConfig
from storage.files.filesystem import ReadFileSystem
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from storage.kernels.index.shape import deduce_slot_count
from storage.view.index.index_file import IndexShape, list_index_files

CHECKED_ENTRIES: Final = 4_096
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
        slot_count = int(deduce_slot_count(data, CHECKED_ENTRIES))
        if slot_count:
            return IndexShape(
                slot_count, (size - HEADER_SIZE - SLOT_SIZE * slot_count) // ENTRY_SIZE
            )
    return None
