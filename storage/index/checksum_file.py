"""The checksums of one index file, kept by the one who puts to it.

The sums follow each put in the same kernel. A record says what the index file was when both were last
synced; what is durable of the sums is what the records allow to check after a power cut:

- a block of entries that was full then has its last sum;
- the block after it is checked by the record's sum of its entries until then;
- slots are made again from the entries.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from storage.format import index_checksums as layout
from storage.format.index import IndexHeader
from storage.format.index_checksums import ENTRIES_PER_BLOCK, ChecksumIdentity, ChecksumRecord
from storage.kernels.index.checksums import sum_blocks, tail_sum
from storage.view.index.checksums import IndexChecksums, checksums_fit

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ByteArray, File, FileSystem
    from storage.view.index.index_file import IndexShape


class ChecksumFile(IndexChecksums):
    """A checksum file mapped for changes."""

    def __init__(self, file: File, shape: IndexShape) -> None:
        self._file = file
        self._region = file.map(writable=True)
        self._shape = shape
        super().__init__(self._region.array)

    @classmethod
    def create(cls, filesystem: FileSystem, path: Path, shape: IndexShape) -> ChecksumFile:
        """Make the checksums of a file of zeros, durable, in place of any that are there.

        Raises StoreFull, and leaves none then.
        """
        with suppress(FileNotFoundError):
            filesystem.unlink(path)
        filesystem.make_directory(path.parent)
        identity = ChecksumIdentity(int(path.name), shape.slot_count, shape.entry_count)
        size = layout.checksum_file_size(shape.slot_count, shape.entry_count)
        # Its blocks are reserved: a store to a mapped hole on a full disk would be a signal.
        file = filesystem.create(path, size, allocate=True, head=identity.encode())
        return cls(file, shape)

    @classmethod
    def open(cls, filesystem: FileSystem, path: Path, shape: IndexShape) -> ChecksumFile | None:
        """Open what is there; None without usable checksums of a file of that name and shape."""
        try:
            file = filesystem.open(path, writable=True)
        except FileNotFoundError:
            return None
        size = layout.checksum_file_size(shape.slot_count, shape.entry_count)
        if file.size == size and checksums_fit(
            file.map(writable=False).array, int(path.name), shape
        ):
            return cls(file, shape)
        file.close()
        return None

    def begin_put(self) -> None:
        """Say that bytes and sums may differ until ``end_put``."""
        self._put_count[0] |= 1

    def end_put(self) -> None:
        """Say that sums fit the bytes again."""
        self._put_count[0] = (self._put_count[0] | 1) + 1

    def sum_all(self, data: ByteArray, next_entry: int) -> None:
        """Make the sums of a file from its bytes, of which entries from ``next_entry`` on are zeros."""
        self.begin_put()
        count = sum_blocks(
            data, self._shape.slot_count, self._shape.entry_count, next_entry, self.sums
        )
        assert count >= 0
        self.end_put()

    def note(
        self, data: ByteArray, header: bytes, *, sealed: bool = False, proven: bool | None = None
    ) -> None:
        """Note what the index file is now, unless that is known; durable with the next ``sync``.

        ``proven`` says whether its entries are known to be the log's; None leaves it as it was.
        """
        before = self.newest()
        if proven is None:
            proven = before is not None and before.proven
        values = IndexHeader.decode(header)
        at_end = min(values.next_entry, self._shape.entry_count)
        tail = int(tail_sum(data, self._shape.slot_count, self._shape.entry_count, at_end))
        checked_ms = before.checked_ms if before is not None else 0
        record = ChecksumRecord(header, tail, sealed, proven, checked_ms)
        if before is None or replace(before, sequence=0) != record:
            self._write(record.follow(before))

    def note_checked(self, now_ms: int) -> None:
        """Note when all blocks were found to be right."""
        newest = self.newest()
        if newest is not None:
            self._write(replace(newest, checked_ms=now_ms))  # of the same number, in its place

    def _write(self, record: ChecksumRecord) -> None:
        begin = layout.record_position(record.sequence)
        self._array[begin : begin + layout.RECORD.size] = np.frombuffer(record.encode(), np.uint8)

    def entries_are_damaged(self, data: ByteArray, header: bytes) -> bool | None:
        """Whether entries that ``header`` counts are not those that were put; None: nothing is known.

        It is known of each header that was noted before one of the last syncs.
        """
        noted = next((each for each in self.records() if each.header == header), None)
        if noted is None:
            return None
        shape, next_entry = self._shape, noted.values.next_entry
        begin = layout.slot_block_count(shape.slot_count)
        full = begin + next_entry // ENTRIES_PER_BLOCK
        if self.bad_block(data, shape, begin, min(full, layout.block_count(*shape))) != -1:
            return True
        at_end = min(next_entry, shape.entry_count)
        return int(tail_sum(data, shape.slot_count, shape.entry_count, at_end)) != noted.tail_sum

    def sync(self) -> None:
        """Make sums and records durable."""
        self._file.sync()

    def close(self) -> None:
        """Release map and descriptor."""
        self._region.close()
        self._array = np.empty(0, np.uint8)
        self.sums = np.empty(0, np.int64)
        self._put_count = np.zeros(1, np.int64)
        self._file.close()
