"""One index file, put to: keys in the order of the log.

Everything in it can be rebuilt from the commit log, byte for byte but for the file's name, which
says when it was created.

What a crash leaves: header, slots and entries are pages of one mapping, so after a power cut any
of them may be older than the others. Entries are written once, in order, and are the only thing
that is not derived: from a count of entries known to be durable, ``truncate`` makes the rest again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format import index as layout
from storage.format.index import IndexHeader
from storage.kernels.index import put_keys, rebuild_slots
from storage.view.index.checksums import checksum_of
from storage.view.index.index_file import IndexFileView, IndexShape

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import File, FileSystem

ALLOCATE_ENTRIES: Final = 200_000  # blocks are reserved this far ahead of the puts: 4 MB

Int64s = npt.NDArray[np.int64]


class IndexKeys(NamedTuple):
    """Keys of records in order, as ``kernels.index.key_hashes`` fills them."""

    hashes: Int64s
    commit_offsets: Int64s
    store_timestamps: Int64s


class IndexFile(IndexFileView):
    """One file mapped for puts, by one process; any may read meanwhile."""

    def __init__(self, file: File, shape: IndexShape, *, writable: bool = True) -> None:
        super().__init__(file, shape, writable=writable)
        self._allocated_entry = 0

    @classmethod
    def create(
        cls,
        filesystem: FileSystem,
        path: Path,
        shape: IndexShape,
        *,
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
            return cls(file, shape)
        except BaseException:
            file.close()
            filesystem.unlink(path)
            raise

    @property
    def is_full(self) -> bool:
        """Whether no entry is left."""
        return self.header.next_entry >= self.shape.entry_count

    def put(self, keys: IndexKeys, start: int, count: int) -> int:
        """Put keys ``[start, count)``; return the first one that found the file full.

        Raises StoreFull, and has put none then, when the disk has no room for the entries.
        """
        self._allocate(self.header.next_entry + count - start)
        accepted = put_keys(
            self._array, self.shape.slot_count, self.shape.entry_count, *keys, start, count
        )
        if accepted < 0:
            raise ValueError(f"keys [{start}, {count}) do not fit the arrays given")
        return int(accepted)

    def put_until_full(self, keys: IndexKeys, start: int, count: int) -> int:
        """Put keys until the file is full, and leave out the others; return ``count``."""
        if not self.is_full:
            self.put(keys, start, count)
        return count

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
        count = min(self.header.next_entry, self.shape.entry_count) - 1
        for found in range(count):
            if self._offset_of_entry(count - found) != commit_offset:
                return found
        return count

    def _offset_of_entry(self, entry: int) -> int:
        position = layout.entry_position(self.shape.slot_count, entry)
        data = bytes(self._array[position : position + layout.ENTRY_SIZE])
        return int(layout.ENTRY.unpack(data)[1])

    def truncate(self, header: IndexHeader) -> None:
        """Go back to ``header``, keeping the entries it counts, and make slots and links again."""
        self._file.allocate(0, layout.entry_position(self.shape.slot_count, header.next_entry))
        self._array[: layout.HEADER_SIZE] = np.frombuffer(header.encode(), np.uint8)
        rebuild_slots(self._array, self.shape.slot_count, self.shape.entry_count, header.next_entry)

    def checksum(self) -> int:
        """Return the checksum of header, slots and the entries that are counted."""
        return checksum_of(self._file, self.header_bytes, self.shape)

    def sync(self) -> None:
        """Make everything put so far durable; the file's name takes a sync of the directory."""
        self._file.sync()
