"""Index files: from a message key to the records that carry it.

One file is a hash table of fixed size (``format.index``); an ``IndexDirectory`` is the growing
sequence of them, the last one written to. Everything in it can be made again from the commit log,
byte for byte but for the files' names, which tell when they were created.

What a crash leaves: header, slots and entries are pages of one mapping, so after a power cut any
of them may be older than the others. Entries are written once, in order, and are the only thing
that is not derived: from a count of entries known to be durable, ``truncate`` makes the rest again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format import index as layout
from storage.format.index import IndexEntry, IndexHeader
from storage.format.names import INDEX_NAME_LENGTH, index_file_name, parse_index_file_name
from storage.kernels.index import put_keys, rebuild_slots, walk_chain

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from storage.files.filesystem import ByteArray, File, FileSystem, Region

INDEX_DIRECTORY: Final = "index"
ALLOCATE_ENTRIES: Final = 200_000  # blocks are reserved this far ahead of the puts: 4 MB

Int64s = npt.NDArray[np.int64]


class IndexShape(NamedTuple):
    """How many slots and entries each file has; entry 0 is never used."""

    slot_count: int
    entry_count: int

    @property
    def file_size(self) -> int:
        """Bytes of one file."""
        return layout.file_size(self.slot_count, self.entry_count)


class IndexFile:
    """One mapped file. One process writes, any may read meanwhile."""

    def __init__(self, file: File, shape: IndexShape, *, writable: bool) -> None:
        if file.size < shape.file_size:
            raise ValueError(f"{file.path}: {file.size} bytes, {shape.file_size} expected")
        self.path = file.path
        self.number = parse_index_file_name(file.path.name) or 0
        self.shape = shape
        self._file = file
        self._region: Region = file.map(writable=writable)
        self._array: ByteArray = self._region.array
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
        told against the seed. Who is killed here leaves no file, or a seeded one: behind a file
        that ends at 0, which a broker does leave, the next broker puts the whole log in once more.
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
        except BaseException:
            file.close()
            filesystem.unlink(path)
            raise
        return cls(file, shape, writable=True)

    @classmethod
    def open(
        cls, filesystem: FileSystem, path: Path, shape: IndexShape, *, writable: bool
    ) -> IndexFile:
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
        return IndexHeader.decode(bytes(self._array[: layout.HEADER_SIZE]))

    @property
    def header_bytes(self) -> bytes:
        """The 40 bytes of the header as they are now."""
        return bytes(self._array[: layout.HEADER_SIZE])

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

        Keys are as ``kernels.index.key_hashes`` fills them. Raises StoreFull, and has put none
        then, when the disk has no room for the entries.
        """
        self._allocate(self.header.next_entry + count - start)
        accepted = put_keys(
            self._array, self.shape.slot_count, self.shape.entry_count, hashes, commit_offsets,
            store_timestamps, start, count,
        )  # fmt: skip
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

    def sync(self) -> None:
        """Make everything put so far durable; the file's name takes a sync of the directory."""
        self._file.sync()

    def close(self) -> None:
        """Let go of map and descriptor."""
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
        exact: bool,
        first_entry: int = 0,
    ) -> tuple[list[int], int]:
        """Follow one hash's chain from the newest entry, or from ``first_entry``.

        Returns commit offsets, newest first, and the entry to go on from, 0 at the end. ``exact``
        is a broker's walk; see ``kernels.index.walk_chain``.
        """
        offsets = np.empty(count_max, np.int64)
        entries = np.empty(count_max, np.int64)
        header = self.header
        limit = header.next_entry if exact else self.shape.entry_count - 1
        if exact and header.next_entry <= 1:
            return [], 0
        found, next_entry = walk_chain(
            self._array, self.shape.slot_count, self.shape.entry_count, key_hash, first_entry,
            limit, begin_ms, end_ms, exact, offsets, entries,
        )  # fmt: skip
        return offsets[:found].tolist(), int(next_entry)


def list_index_files(filesystem: FileSystem, directory: Path) -> list[tuple[int, int, Path]]:
    """Return ``(number, size, path)`` of the files in ``directory``, oldest first.

    Names that are no numbers are not index files.
    """
    found = []
    for entry in filesystem.list_directory(directory):
        number = parse_index_file_name(entry.name)
        if number is not None and not entry.is_directory:
            found.append((number, entry.size, directory / entry.name))
    return sorted(found)


class IndexDirectory:
    """The writer's side: all files, in order, the last one open for puts."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        shape: IndexShape,
        *,
        now_ms: Callable[[], int],
        new_name: Callable[[], str] | None = None,
    ) -> None:
        """Open the files that are there; those of any other size are left out of ``files``.

        ``new_name`` gives new files their names instead of the clock.
        """
        self.directory = directory
        self.shape = shape
        self._filesystem = filesystem
        self._now_ms = now_ms
        self._new_name = new_name
        filesystem.make_directory(directory)
        listed = list_index_files(filesystem, directory)
        self.misfits = [path for _, size, path in listed if size != shape.file_size]
        self.paths = [path for _, size, path in listed if size == shape.file_size]
        self._last: IndexFile | None = None

    @property
    def last(self) -> IndexFile | None:
        """The file that is put to, None if there is none."""
        if self._last is None and self.paths:
            self._last = self.open(self.paths[-1])
        return self._last

    def open(self, path: Path) -> IndexFile:
        """Map one of the files for writing."""
        return IndexFile.open(self._filesystem, path, self.shape, writable=True)

    def headers(self) -> list[IndexHeader]:
        """Headers of all files, oldest first; a blank one of a file that is gone."""
        return [IndexHeader.decode(self._head(path)) for path in self.paths]

    def _head(self, path: Path) -> bytes:
        if self._last is not None and path == self._last.path:
            return self._last.header_bytes
        try:
            file = self._filesystem.open(path, writable=False)
        except FileNotFoundError:
            return IndexHeader().encode()
        try:
            return file.pread(layout.HEADER_SIZE, 0)
        finally:
            file.close()

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> tuple[int, IndexFile | None]:
        """Put keys from ``start`` on into the last file until it is full or ``count`` is reached.

        Returns the first key not put, and None; or, when the last file is found full, ``start`` and
        that file: its successor is there then and takes the next call's keys. As with a broker, a
        full file gets its successor with the next record, keyed or not. Raises StoreFull, and has
        put nothing then; try again when there is room.
        """
        last = self.last
        if last is None or last.is_full:
            filled, last = last, self._roll(last)
            if filled is not None:
                return start, filled  # now: if the successor's blocks fail, nobody would hear of it
        return last.put(hashes, commit_offsets, store_timestamps, start, count), None

    def _roll(self, full: IndexFile | None) -> IndexFile:
        header = full.header if full is not None else IndexHeader()
        path = self.directory / self._next_name()
        self._last = IndexFile.create(
            self._filesystem,
            path,
            self.shape,
            seed_timestamp_ms=header.end_timestamp_ms,
            seed_commit_offset=header.end_commit_offset,
        )
        self.paths.append(path)
        return self._last

    def _next_name(self) -> str:
        if self._new_name is not None:
            return self._new_name()
        name = index_file_name(self._now_ms())
        newest = parse_index_file_name(self.paths[-1].name) or 0 if self.paths else 0
        # Names sort files: a clock that stands still or goes back must not put one in between.
        return f"{max(int(name), newest + 1):0{INDEX_NAME_LENGTH}d}"

    def forget(self, commit_offset: int, timestamp_of: Callable[[int], int]) -> None:
        """Take back the entries of the newest record, which may lie in several files.

        Files that have no others are deleted. See ``IndexFile.forget``.
        """
        while (last := self.last) is not None:
            count = last.entries_at_end(commit_offset)
            if count < last.header.next_entry - 1:
                if count:
                    last.forget(count, timestamp_of)
                return
            self.drop_from(len(self.paths) - 1)

    def truncate_last(self, header: IndexHeader) -> None:
        """Take the last file back to ``header``; see ``IndexFile.truncate``."""
        last = self.last
        if last is not None:
            last.truncate(header)

    def drop_from(self, position: int) -> None:
        """Delete the files ``[position:]``, newest first; durable on return."""
        self.keep(self.paths[:position])

    def keep(self, paths: Collection[Path]) -> None:
        """Delete all files but these, newest first; durable on return."""
        if self._last is not None:
            self._last.close()
            self._last = None
        for path in reversed(self.paths):
            if path not in paths:
                with suppress(FileNotFoundError):
                    self._filesystem.unlink(path)
        self.paths = [path for path in self.paths if path in paths]
        self._filesystem.sync_directory(self.directory)

    def drop_misfits(self) -> None:
        """Delete the files whose size is not the shape's; durable on return."""
        for path in self.misfits:
            with suppress(FileNotFoundError):
                self._filesystem.unlink(path)
        self.misfits.clear()
        self._filesystem.sync_directory(self.directory)

    def lost(self) -> list[Path]:
        """Return the files that somebody has deleted, oldest first."""
        there = {path for _, _, path in list_index_files(self._filesystem, self.directory)}
        return [path for path in self.paths if path not in there]

    def give_up(self, lost: Collection[Path]) -> None:
        """Forget files that are gone."""
        self._filesystem.make_directory(self.directory)
        self.keep([path for path in self.paths if path not in lost])

    def sync(self) -> None:
        """Make the last file and all names durable."""
        if self._last is not None:
            self._last.sync()
        self._filesystem.sync_directory(self.directory)

    def close(self) -> None:
        """Let go of the open file."""
        if self._last is not None:
            self._last.close()
            self._last = None
