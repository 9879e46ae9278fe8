"""One index file, read: from a message key to the records that carry it.

It is a hash table of fixed size (``format.index``), and others may put to it meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format import index as layout
from storage.format.index import IndexHeader
from storage.format.names import parse_index_file_name
from storage.kernels.index.checksums import NO_SUMS
from storage.kernels.index.entries import walk_chain
from storage.view.index.checksums import IndexChecksums

if TYPE_CHECKING:
    from typing import Self

    from storage.files.filesystem import ByteArray, File, FileSystem, ReadFileSystem, Region


PUT_LOOKS: Final = 1_000  # at a block that a put may be changing
PUT_LOOK_S: Final = 0.001


class IndexShape(NamedTuple):
    """How many slots and entries each file has; entry 0 is never used."""

    slot_count: int
    entry_count: int

    @property
    def file_size(self) -> int:
        """Bytes of one file."""
        return layout.file_size(self.slot_count, self.entry_count)


class ChainWalk(NamedTuple):
    """Commit offsets of one hash, newest first, and the entry to go on from, 0 at the end.

    A chain that ``is_damaged`` ends where bytes of the file are not those that were put.
    """

    commit_offsets: list[int]
    next_entry: int
    is_damaged: bool = False


class IndexFileView:
    """One mapped file; ``checksums`` are None where nothing is known of its bytes."""

    def __init__(
        self,
        file: File,
        shape: IndexShape,
        *,
        writable: bool = False,
        checksums: IndexChecksums | None = None,
    ) -> None:
        if file.size < shape.file_size:
            raise ValueError(f"{file.path}: {file.size} bytes, {shape.file_size} expected")
        self.path = file.path
        self.number = parse_index_file_name(file.path.name) or 0
        self.shape = shape
        self.checksums = checksums
        self._begin_timestamp: bytes | None = None  # as the checksums have it
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

    def data(self, begin: int, end: int) -> ByteArray:
        """Return bytes ``[begin, end)`` as they are now."""
        return self._array[begin:end]

    @property
    def covered(self) -> tuple[int, int]:
        """Where the records begin whose keys it holds: from the first to after the last."""
        noted = self.checksums.newest() if self.checksums is not None else None
        header = noted.values if noted is not None else self.header
        return header.begin_commit_offset, header.end_commit_offset + 1

    @property
    def last_commit_offset(self) -> int:
        """Where the record of its last key begins, as the header has it now."""
        begin = layout.END_COMMIT_OFFSET_POSITION
        return int.from_bytes(self._array[begin : begin + 8].tobytes(), "big")

    @property
    def spanned(self) -> tuple[int, int] | None:
        """Where the records of its first and of its last key begin, whichever of header and checksums is older; None without a key."""
        header = self.header
        noted = self.checksums.newest() if self.checksums is not None else None
        if noted is None or noted.values.next_entry <= 1:
            begin, end = header.begin_commit_offset, header.end_commit_offset
            return (begin, end) if header.next_entry > 1 else None
        values = noted.values
        return values.begin_commit_offset, max(values.end_commit_offset, header.end_commit_offset)

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
        entry_limit: int | None = None,
        in_time_order: bool = False,
    ) -> ChainWalk:
        """Follow one hash's chain from the newest entry, or from ``first_entry``.

        All entries that could be of the range of times are returned, or those before
        ``entry_limit``; with ``in_time_order`` times count as the file has them, and the first
        earlier one is the end.
        """
        offsets = np.empty(count_max, np.int64)
        entries = np.empty(count_max, np.int64)
        limit = self.shape.entry_count - 1 if entry_limit is None else entry_limit
        checksums = self.checksums
        sums = NO_SUMS if checksums is None else checksums.sums
        for _ in range(PUT_LOOKS):
            put_count = 0 if checksums is None else checksums.put_count
            found, next_entry, bad_block = walk_chain(
                self._array, self.shape.slot_count, self.shape.entry_count, key_hash, first_entry,
                limit, begin_ms, end_ms, in_time_order, offsets, entries, sums,
            )  # fmt: skip
            is_damaged = bad_block >= 0 or not self._begins_as_noted()
            if not is_damaged or checksums is None:
                break
            if put_count % 2 == 0 and put_count == checksums.put_count:
                break
            time.sleep(PUT_LOOK_S)
        return ChainWalk(offsets[:found].tolist(), int(next_entry), is_damaged)

    def _begins_as_noted(self) -> bool:
        """Whether the header has the time that all entries are held against."""
        if self.checksums is None:
            return True
        if self._begin_timestamp is None:
            newest = self.checksums.newest()
            if newest is None or newest.values.next_entry <= 1:
                return True
            self._begin_timestamp = newest.header[: layout.END_TIMESTAMP_POSITION]
        return bytes(self._array[: layout.END_TIMESTAMP_POSITION]) == self._begin_timestamp


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
