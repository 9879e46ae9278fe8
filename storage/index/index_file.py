"""One index file, put to: keys in the order of the log.

Everything in it can be made again from the commit log, byte for byte but for the file's name, which
says when it was created.

What a crash leaves: header, slots and entries are pages of one mapping, so after a power cut any
of them may be older than the others. Entries are written once, in order, and are the only thing
that is not derived: from a count of entries known to be durable, ``truncate`` makes the rest again.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.format import index as layout
from storage.format.index import IndexEntry, IndexHeader
from storage.format.index_checksums import ENTRIES_PER_BLOCK, slot_block_count
from storage.index.checksum_file import ChecksumFile
from storage.kernels.index.entries import put_keys, rebuild_slots
from storage.view.index.checksums import block_count
from storage.view.index.index_file import IndexFileView, IndexShape

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.filesystem import File, FileSystem

ALLOCATE_ENTRIES: Final = 200_000  # blocks are reserved this far ahead of the puts: 4 MB

Int64s = npt.NDArray[np.int64]


class IndexFileDamaged(Exception):
    """The header is not as the last put left it, so that the next would go astray."""


class IndexFile(IndexFileView):
    """One file mapped for puts, by one process; any may read meanwhile.

    ``checksum_path`` is where its checksums are, or are made before the first put.
    """

    def __init__(
        self, file: File, shape: IndexShape, *, filesystem: FileSystem, checksum_path: Path
    ) -> None:
        super().__init__(file, shape, writable=True)
        self._allocated_entry = 0
        self._filesystem = filesystem
        self._checksum_path = checksum_path
        self._kept = ChecksumFile.open(filesystem, checksum_path, shape)
        self._left: bytes | None = None  # the header as it was left, once the sums fit the bytes

    @classmethod
    def open_for_puts(
        cls, filesystem: FileSystem, path: Path, shape: IndexShape, *, checksum_path: Path
    ) -> IndexFile:
        """Map an existing file; ValueError if it is smaller than ``shape`` says."""
        file = filesystem.open(path, writable=True)
        try:
            return cls(file, shape, filesystem=filesystem, checksum_path=checksum_path)
        except BaseException:
            file.close()
            raise

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        path: Path,
        shape: IndexShape,
        *,
        checksum_path: Path,
        seed_timestamp_ms: int = 0,
        seed_commit_offset: int = 0,
    ) -> IndexFile:
        """Create a file whose header begins and ends where the file before ended.

        A broker seeds headers like this; the first put overwrites the begin, but its own time is
        held against the seed. A kill here leaves no file, or a seeded one: after a file that ends
        at 0, which a broker does leave, the next broker puts the whole log in once more.
        Nothing is durable before ``sync``. Raises StoreFull.
        """
        head = IndexHeader(
            begin_timestamp_ms=seed_timestamp_ms,
            end_timestamp_ms=seed_timestamp_ms,
            begin_commit_offset=seed_commit_offset,
            end_commit_offset=seed_commit_offset,
            used_slot_count=0,
            next_entry=0,
        )
        file = filesystem.create(path, shape.file_size, allocate=False, head=head.encode())
        try:
            file.allocate(0, layout.entry_position(shape.slot_count, 0))
            ChecksumFile.create(filesystem, checksum_path, shape).close()
            made = cls(file, shape, filesystem=filesystem, checksum_path=checksum_path)
            made._note(proven=True)
        except BaseException:
            file.close()
            filesystem.unlink(path)
            raise
        return made

    @property
    def is_full(self) -> bool:
        """Whether no entry is left."""
        return self.header.next_entry >= self.shape.entry_count

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> int:
        """Put keys ``[start, count)``; return the first one that found the file full.

        Keys are as ``kernels.index.entries.key_hashes`` fills them. Raises StoreFull, and has put none
        then, when the disk has no room for the entries.
        """
        checksums = self._summed()
        if self.header_bytes != self._left:
            raise IndexFileDamaged(f"{self.path}: the header is not as it was left")
        self._allocate(self.header.next_entry + count - start)
        checksums.begin_put()
        accepted = put_keys(
            self._array, self.shape.slot_count, self.shape.entry_count, hashes, commit_offsets,
            store_timestamps, start, count, checksums.sums,
        )  # fmt: skip
        checksums.end_put()
        self._left = self.header_bytes
        if accepted < 0:
            raise ValueError(f"keys [{start}, {count}) do not fit the arrays given")
        return int(accepted)

    def _allocate(self, next_entry: int) -> None:
        # A store to a mapped hole on a full disk would be a signal, not an error.
        if next_entry <= self._allocated_entry or self._allocated_entry >= self.shape.entry_count:
            return
        begin = self._allocated_entry or self.header.next_entry
        end = min(next_entry + ALLOCATE_ENTRIES, self.shape.entry_count)
        if begin < end:
            begin_position = layout.entry_position(self.shape.slot_count, begin)
            end_position = layout.entry_position(self.shape.slot_count, end)
            self._file.allocate(begin_position, end_position - begin_position)
        self._allocated_entry = end

    def entries_at_end(self, commit_offset: int) -> int:
        """Return how many entries at the file's end are of the record at ``commit_offset``."""
        count = self.header.next_entry - 1
        for found in range(count):
            if self._offset_of_entry(count - found) != commit_offset:
                return found
        return count

    def _offset_of_entry(self, entry: int) -> int:
        position = layout.entry_position(self.shape.slot_count, entry)
        data = bytes(self._array[position : position + layout.ENTRY_SIZE])
        return IndexEntry.decode(data).commit_offset

    def forget(self, count: int, timestamp_of: Callable[[int], int]) -> None:
        """Take back the newest ``count`` entries, not all; ``timestamp_of`` a record, by its offset.

        What a power cut leaves of it is a file that ends sooner, never one that ends with zeros.
        """
        next_entry = self.header.next_entry - count
        end_commit_offset = self._offset_of_entry(next_entry - 1)
        header = replace(
            self.header,
            next_entry=next_entry,
            end_commit_offset=end_commit_offset,
            end_timestamp_ms=timestamp_of(end_commit_offset),
        )
        self._array[: layout.HEADER_SIZE] = np.frombuffer(header.encode(), np.uint8)
        self.sync()
        self.truncate(header)

    def truncate(self, header: IndexHeader) -> None:
        """Go back to ``header``, keeping the entries it counts, and make slots and links again."""
        self._file.allocate(0, layout.entry_position(self.shape.slot_count, header.next_entry))
        self._array[: layout.HEADER_SIZE] = np.frombuffer(header.encode(), np.uint8)
        rebuild_slots(self._array, self.shape.slot_count, self.shape.entry_count, header.next_entry)
        if self._kept is not None:
            self._sum_all()

    def entries_are_damaged(self, header: bytes) -> bool:
        """Whether entries that ``header`` counts are known to be others than those that were put.

        A file of which nothing is known, and that counts fewer, is an old copy.
        """
        kept = self._kept
        is_damaged = None if kept is None else kept.entries_are_damaged(self._array, header)
        if is_damaged is None:
            return self.header.next_entry < IndexHeader.decode(header).next_entry
        return is_damaged

    def is_damaged(self) -> bool:
        """Whether bytes are known to be others than those that were put, or header and sums disagree.

        A file without checksums gets them, and is not damaged.
        """
        if self._kept is not None and self._left is None:
            newest = self._kept.newest()
            if newest is not None and newest.sealed and newest.header != self.header_bytes:
                return True
        checksums = self._summed()
        bad_block = checksums.bad_block(self._array, self.shape, 0, self.used_blocks)
        return bad_block != -1 or self.header_bytes != self._left

    @property
    def used_blocks(self) -> int:
        """How many blocks there are up to that of the next entry.

        No chain leads beyond, and the file has holes there: read through the mapping, they would take memory.
        """
        entries = max(self.header.next_entry, 0) // ENTRIES_PER_BLOCK + 1
        return min(slot_block_count(self.shape.slot_count) + entries, block_count(self.shape))

    def has_bad_block(self, begin: int, end: int) -> bool:
        """Whether one of the blocks ``[begin, end)`` is not as it was put."""
        return self._summed().bad_block(self._array, self.shape, begin, end) != -1

    def note_checked(self, now_ms: int, *, proven: bool = False) -> None:
        """Note that all blocks are right, and with ``proven`` that the entries are the log's."""
        checksums = self._summed()
        if proven:
            self._note(proven=True)
        checksums.note_checked(now_ms)

    def _summed(self) -> ChecksumFile:
        """Return checksums that fit the bytes: those found if they were noted with this header."""
        if self._kept is None:
            self._kept = ChecksumFile.create(self._filesystem, self._checksum_path, self.shape)
            self.truncate(self.header)  # slots and links follow from the entries
            self._note(proven=False)
        elif self._left is None:
            newest = self._kept.newest()
            if newest is None or newest.header != self.header_bytes:
                self.truncate(self.header)  # slots and links follow from the entries
                self._note(proven=False)
            self._left = self.header_bytes
        return self._kept

    def _sum_all(self) -> None:
        assert self._kept is not None
        self._kept.sum_all(self._array, min(self.header.next_entry, self.shape.entry_count))
        self._left = self.header_bytes
        self._note()

    def _note(self, *, proven: bool | None = None) -> None:
        assert self._kept is not None
        self._kept.note(self._array, self.header_bytes, sealed=self.is_full, proven=proven)

    def sync(self) -> None:
        """Make everything put so far durable; the file's name takes a sync of the directory."""
        checksums = self._summed()
        self._file.sync()
        self._note()
        checksums.sync()

    def close(self) -> None:
        """Release maps and descriptors."""
        super().close()
        if self._kept is not None:
            self._kept.close()
