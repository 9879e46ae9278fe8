"""One index file, read: from a message key to the records that carry it.

It is a hash table of fixed size (``format.index``), and others may put to it meanwhile.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.format import index as layout
from storage.format.index import IndexHeader
from storage.format.names import parse_index_file_name
from storage.kernels.index import walk_chain

if TYPE_CHECKING:
    from typing import Self

    from storage.files.filesystem import ByteArray, File, FileSystem, ReadFileSystem, Region


class IndexShape(NamedTuple):
    """How many slots and entries each file has; entry 0 is never used."""

    slot_count: int
    entry_count: int

    @property
    def file_size(self) -> int:
        """Bytes of one file."""
        return layout.file_size(self.slot_count, self.entry_count)


class ChainWalk(NamedTuple):
    """Commit offsets of one hash, newest first, and the entry to go on from, 0 at the end."""

    commit_offsets: list[int]
    next_entry: int


class IndexFileView:
    """One mapped file."""

    def __init__(self, file: File, shape: IndexShape, *, writable: bool = False) -> None:
        if file.size < shape.file_size:
            raise ValueError(f"{file.path}: {file.size} bytes, {shape.file_size} expected")
        self.path = file.path
        self.number = parse_index_file_name(file.path.name) or 0
        self.shape = shape
        self._file = file
        self._region: Region = file.map(writable=writable)
        self._array: ByteArray = self._region.array

    @classmethod
    def open(
        cls, filesystem: FileSystem, path: Path, shape: IndexShape, *, writable: bool = False
    ) -> Self:
        """Map an existing file; ValueError if it is smaller than ``shape`` says."""
        file = filesystem.open(path, writable=writable)
        try:
            return cls(file, shape, writable=writable)
        except BaseException:
            file.close()
            raise

    @property
    def header(self) -> IndexHeader:
        """The header as it is now."""
        return IndexHeader.decode(self.header_bytes)

    @property
    def header_bytes(self) -> bytes:
        """The 40 bytes of the header as they are now."""
        return bytes(self._array[: layout.HEADER_SIZE])

    def close(self) -> None:
        """Release map and descriptor."""
        self._region.close()
        self._array = np.empty(0, np.uint8)
        self._file.close()

    def find(
        self,
        key_hash: int,
        *,
        begin_ms: int,
        end_ms: int,
        count_max: int,
        first_entry: int = 0,
    ) -> ChainWalk:
        """Follow one hash's chain from the newest entry, or from ``first_entry``.

        All entries that could be of the range of times are returned.
        """
        offsets = np.empty(count_max, np.int64)
        found, next_entry = walk_chain(
            self._array, self.shape.slot_count, self.shape.entry_count, key_hash, first_entry,
            begin_ms, end_ms, offsets,
        )  # fmt: skip
        return ChainWalk(offsets[:found].tolist(), int(next_entry))


def list_index_files(filesystem: ReadFileSystem, directory: Path) -> list[tuple[int, int, Path]]:
    """Return ``(number, size, path)`` of the files in ``directory``, oldest first.

    Names that are no numbers are not index files.
    """
    found = []
    for entry in filesystem.list_directory(directory):
        number = parse_index_file_name(entry.name)
        if number is not None and not entry.is_directory:
            found.append((number, entry.size, directory / entry.name))
    return sorted(found)
