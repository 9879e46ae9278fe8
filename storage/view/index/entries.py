"""Index files as arrays: their headers, slots and entries, wherever the store lies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from storage.format.index import (
    HEADER_SIZE,
    SLOT_SIZE,
    IndexHeader,
    entry_position,
)
from storage.view.index.index_file import IndexShape, list_index_files
from storage.view.index.shape import BROKER_SHAPE, shape_of_size

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, ReadFileSystem

ENTRY_DTYPE: Final = np.dtype(
    [("hash", ">i4"), ("offset", ">i8"), ("delta", ">i4"), ("previous", ">i4")]
)


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """One index file. ``shape`` is None where nothing says it; then there are no entries."""

    filesystem: ReadFileSystem
    path: Path
    size: int
    shape: IndexShape | None

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.path.name

    @property
    def slot_count(self) -> int:
        """How many slots it has, 0 without a shape."""
        return self.shape.slot_count if self.shape is not None else 0

    @property
    def capacity(self) -> int:
        """The number of the last entry that it has room for."""
        return self.shape.entry_count - 1 if self.shape is not None else 0

    def header_bytes(self) -> bytes:
        """Return the first 40 bytes, fewer of a file that is cut off."""
        file = self.filesystem.open(self.path, writable=False)
        try:
            return file.pread(HEADER_SIZE, 0)
        finally:
            file.close()

    def header(self) -> IndexHeader:
        """Return the header as it is now; a blank one of a file that is cut off before its end."""
        data = self.header_bytes()
        return IndexHeader.decode(data) if len(data) == HEADER_SIZE else IndexHeader()

    def counted(self, header: IndexHeader) -> int:
        """Return how many entries the header counts, as many as there can be at most."""
        return min(header.next_entry - 1, self.capacity)

    def data(self) -> ByteArray:
        """Return all of the file's bytes."""
        return self.filesystem.map_ranges(self.path, 0)

    def slots(self, data: ByteArray) -> npt.NDArray[Any]:
        """Return the slots in ``data``, the bytes of the file."""
        return np.frombuffer(data[HEADER_SIZE : HEADER_SIZE + SLOT_SIZE * self.slot_count], ">i4")

    def entries(self, count: int) -> npt.NDArray[Any]:
        """Return entries from number 1 to ``count``."""
        begin, end = (entry_position(self.slot_count, entry) for entry in (1, count + 1))
        return np.frombuffer(self.filesystem.map_ranges(self.path, 0, end)[begin:end], ENTRY_DTYPE)


def open_index(
    filesystem: ReadFileSystem, directory: Path, settled: IndexShape | None
) -> list[IndexEntries]:
    """Look at the index files in ``directory``, oldest first.

    Their shape is ``settled``, a broker's, or what their entries show, as their length says.
    """
    likely = [BROKER_SHAPE] if settled is None else [settled, BROKER_SHAPE]
    shapes: dict[int, IndexShape | None] = {}
    found = []
    for _, size, path in list_index_files(filesystem, directory):
        if size not in shapes:
            shapes[size] = shape_of_size(filesystem, directory, size, likely)
        found.append(IndexEntries(filesystem, path, size, shapes[size]))
    return found
