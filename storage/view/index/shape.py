"""The number of slots and entries of a store's index files, where nobody says it.

A broker keeps both in its own configuration alone, and the size of a file allows many splits. Only
one of them lets the entries be found from the slots of their hashes, which is how it is told.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from storage.files.filesystem import FileSystem
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexHeader
from storage.kernels.index_shape import deduce_slot_count
from storage.view.index.index_file import IndexShape, list_index_files

CHECKED_ENTRIES: Final = 4_096


def find_index_shape(filesystem: FileSystem, directory: Path, likely: IndexShape) -> IndexShape:
    """Return the shape of the files in ``directory``; ``likely`` if they fit it or do not tell.

    Files are asked from the one with the most entries on.
    """
    listed = list_index_files(filesystem, directory)
    sizes = [size for _, size, _ in listed if size >= HEADER_SIZE + SLOT_SIZE + 2 * ENTRY_SIZE]
    if not sizes or likely.file_size in sizes:
        return likely
    common = max(set(sizes), key=sizes.count)
    counted = []
    for _, size, path in listed:
        if size == common:
            file = filesystem.open(path, writable=False)
            header = IndexHeader.decode(file.pread(HEADER_SIZE, 0))
            file.close()
            counted.append((header.next_entry, path))
    for _, path in sorted(counted, reverse=True):
        file = filesystem.open(path, writable=False)
        region = file.map(writable=False)
        slot_count = int(deduce_slot_count(region.array, CHECKED_ENTRIES))
        region.close()
        file.close()
        if slot_count:
            entry_count = (common - HEADER_SIZE - SLOT_SIZE * slot_count) // ENTRY_SIZE
            return IndexShape(slot_count, entry_count)
    return likely
