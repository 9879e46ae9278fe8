"""Consume queues, append side: 20-byte units in sparse files of full length.

Units are written with ``pwrite``, never through a map, so that a full disk is an error and not a
signal; files have a broker's full length from the moment they exist, as one hole.

Invariants:
1. One thread appends units (dispatch, or recovery before dispatch starts). Others only write again what
   the queue has had (``overwrite``), under the guard.
2. ``next_offset`` of a queue moves only after its unit is in the page cache.
3. Files are opened under the ``guard`` of all queues' files.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.files.mapped_file_queue import FileEntry, file_path, list_files
from storage.format.consume_entry import UNIT_SIZE
from storage.view.queues.queue_files import BESIDE
from storage.view.queues.unit_search import UnitSource, end_of_units, first_unit_at
from storage.view.queues.units import Units, as_units, prefill_units

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, File
    from storage.queues.queue_files import OpenQueueFiles


class _Tail(NamedTuple):
    """The file that was written to last. It is dirty until the next sync."""

    start: int
    file: File
    sync_count: int


class ConsumeQueue(UnitSource):
    """Units of one topic's one queue. ``next_offset`` is the queue offset given out next."""

    def __init__(self, files: OpenQueueFiles, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.next_offset = 0
        self._files = files
        self._file_size = files.file_size
        self._starts: set[int] = set()
        self._last_path: tuple[int, Path] | None = None
        self._tail: _Tail | None = None
        self._found_end: tuple[int, int] | None = None  # for a limit, until it is written to
        self._found_first: tuple[int, int, int] | None = (
            None  # for a log's begin and the first file's
        )
        self.refresh()

    @cached_property
    def directory(self) -> Path:
        """Where its files are; a start that looks at thousands of queues builds no path for each."""
        return self._files.directory.joinpath(self.topic, str(self.queue_id))

    def refresh(self) -> None:
        """List the files; bring those of a wrong length to the right one."""
        self._found_end = self._found_first = None
        self._starts = set()
        for entry in list_files(self._files.filesystem, self.directory):
            if entry.start_offset % self._file_size:
                continue
            if entry.size != self._file_size:
                self._files.repair_length(entry.path, entry.size)
            self._starts.add(entry.start_offset)
            self._last_path = entry.start_offset, entry.path

    @property
    def file_starts(self) -> list[int]:
        """Byte offsets at which files start, ascending."""
        return sorted(self._starts)

    @property
    def first_offset(self) -> int:
        """Queue offset at which the oldest file starts."""
        return min(self._starts, default=0) // UNIT_SIZE

    @property
    def units_per_file(self) -> int:
        """How many units a file holds."""
        return self._file_size // UNIT_SIZE

    @property
    def unit_count(self) -> int:
        """How many units the queue's files hold, placeholders in front of the first included."""
        return self.next_offset - self.first_offset if self._starts else 0

    @property
    def exists(self) -> bool:
        """Whether the queue has a file."""
        return bool(self._starts)

    def append(self, units: bytes | memoryview) -> None:
        """Write whole units at ``next_offset``. Raises StoreFull and then has moved nothing."""
        with self._files.guard:
            if not self._starts and self.next_offset:
                self.prefill(self.next_offset)
            self.write(self.next_offset, units)
            self.next_offset += len(units) // UNIT_SIZE

    def append_next(self, first: int, units: memoryview) -> bool:
        """Append units from queue offset ``first`` on if that takes but one write to the last file.

        False, and nothing was done, if it takes more. Raises StoreFull and then has moved nothing.
        """
        files = self._files
        with files.guard:
            tail = self._tail
            if tail is None or tail.sync_count != files.sync_count or first != self.next_offset:
                return False
            position = first * UNIT_SIZE - tail.start
            if not 0 <= position <= self._file_size - len(units):
                return False
            if not files.has_open(self._path_at(tail.start), tail.file):
                return False
            tail.file.pwrite(units, position)
            self.next_offset = first + len(units) // UNIT_SIZE
        return True

    def write(self, queue_offset: int, units: bytes | memoryview) -> None:
        """Write units from ``queue_offset`` on, making files as they are needed."""
        self._found_end = None
        data = memoryview(units)
        position = queue_offset * UNIT_SIZE
        while data:
            start = position - position % self._file_size
            count = min(len(data), start + self._file_size - position)
            file = self._open_for_writing(start)
            file.pwrite(data[:count], position - start)
            self._tail = _Tail(start, file, self._files.sync_count)
            data = data[count:]
            position += count

    def _open_for_writing(self, start: int) -> File:
        """Return the file at ``start``, made if there is none."""
        path = self._path_at(start)
        if start in self._starts:
            with suppress(FileNotFoundError):  # others have removed it
                return self._files.open_for_writing(path, exists=True)
        file = self._files.open_for_writing(path, exists=False)
        self._starts.add(start)
        return file

    def overwrite(self, queue_offset: int, units: bytes) -> bool:
        """Write units again that the queue has had before; ``next_offset`` stays. Raises StoreFull.

        False, and nothing was done, if the queue has them no more: its topic was deleted, or retention took the file.
        """
        with self._files.guard:
            end = queue_offset + len(units) // UNIT_SIZE
            if queue_offset < self.first_offset or end > self.next_offset:
                return False
            tail = self._tail
            self.write(queue_offset, units)
            self._tail = tail
            self._found_first = None
            return True

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return ``count`` units from ``queue_offset`` on; zeros where no file is."""
        with self._files.guard:
            return self._read(queue_offset, count)

    def _read(self, queue_offset: int, count: int) -> bytes:
        parts = []
        position = queue_offset * UNIT_SIZE
        end = position + count * UNIT_SIZE
        while position < end:
            start = position - position % self._file_size
            length = min(end, start + self._file_size) - position
            if start in self._starts:
                part = b""
                with suppress(FileNotFoundError):  # others have removed it
                    file = self._files.open_for_reading(self._path_at(start))
                    part = file.pread(length, position - start)
                parts.append(part.ljust(length, b"\0"))
            else:
                parts.append(bytes(length))
            position += length
        return b"".join(parts)

    def units(self, first: int, count: int) -> Units:
        """Return ``count`` units from ``first`` on; zeros where no file is."""
        return as_units(self.read(first, count))

    @property
    def files(self) -> list[FileEntry]:
        """The queue's files in order of offset, each of full length."""
        return [
            FileEntry(start, self._file_size, file_path(self.directory, start))
            for start in sorted(self._starts)
        ]

    def window(self, begin: int, end: int) -> tuple[ByteArray, int]:
        """Return units ``[begin, end)`` of the file that ``begin`` is in, some beside them, and the first's number."""
        first = begin - begin % self.units_per_file
        low = max(begin - BESIDE, first)
        high = min(end + BESIDE, first + self.units_per_file)
        return np.frombuffer(self.read(low, high - low), np.uint8), low

    def data_size(self, start: int) -> int:
        """Return up to where the file at ``start`` has data: what follows is one hole."""
        with self._files.guard:
            return self._files.data_size(self._path_at(start))

    def prefill(self, queue_offset: int) -> None:
        """Fill a missing file up to ``queue_offset``, as a broker does when a queue begins late.

        Raises StoreFull and then has left no file: one that exists is never filled up again.
        """
        begin = queue_offset - queue_offset % self.units_per_file
        start = begin * UNIT_SIZE
        if start not in self._starts and queue_offset > begin:
            try:
                self.write(begin, prefill_units(queue_offset - begin).tobytes())
            except BaseException:
                if start in self._starts:
                    self._files.remove(file_path(self.directory, start))
                    self._starts.discard(start)
                raise

    def find_end(self, limit_commit_offset: int) -> int:
        """Return the queue offset after the last unit whose record ends at or before ``limit_commit_offset``.

        What follows is zeros, or units of records beyond the limit.
        """
        last = max(self._starts, default=None)
        if last is None or limit_commit_offset <= 0:
            return self.first_offset
        found = self._found_end if self._tail is None else None
        if found is None or found[0] != limit_commit_offset:
            *files, newest = self.files
            size = -(-self.data_size(last) // UNIT_SIZE) * UNIT_SIZE  # a file is mostly a hole
            files.append(newest._replace(size=min(size, self._file_size)))
            end = end_of_units(self, limit_commit_offset, files)
            found = self._found_end = limit_commit_offset, end
        return found[1]

    def find_first(self, min_commit_offset: int) -> int:
        """Return the queue offset of the first unit whose record the log still has."""
        known = self._found_first
        if known is not None and known[:2] == (min_commit_offset, self.first_offset):
            return known[2]
        end = self.next_offset
        found = first_unit_at(self, self.first_offset, end, min_commit_offset)
        # Units that are written again may move it, those that are appended cannot.
        self._found_first = (min_commit_offset, self.first_offset, found) if found < end else None
        return found

    def expired_files(self, min_commit_offset: int, end: int) -> list[int]:
        """Return where the files start all of whose units are of records before a commit offset.

        ``end`` is the queue's. Never the last file, nor one whose last unit is missing: what it had to say is not known.
        Nor one after which the queue seems to begin: its last unit may have a flipped bit, and its record be there.
        """
        starts = self.file_starts
        if len(starts) < 2 or min_commit_offset <= 0:
            return []
        first = first_unit_at(self, self.first_offset, end, min_commit_offset)
        expired = []
        for start in starts[:-1]:
            file_end = (start + self._file_size) // UNIT_SIZE
            last = self.unit(file_end - 1)
            if file_end >= first or last.size <= 0 or last.commit_offset >= min_commit_offset:
                break
            expired.append(start)
        return expired

    def release_files(self, starts: list[int]) -> list[Path]:
        """Take files out of the queue, which stay on disk; return them, oldest first. Never the last one."""
        last = max(self._starts, default=0)
        released = [start for start in sorted(starts) if start in self._starts and start < last]
        self._starts.difference_update(released)
        return [file_path(self.directory, start) for start in released]

    def make_files(self, begin: int, end: int) -> list[int]:
        """Make the files of units ``[begin, end)`` that are not there, each as one hole; return where they start."""
        first, made = begin * UNIT_SIZE, []
        for start in range(first - first % self._file_size, end * UNIT_SIZE, self._file_size):
            path = file_path(self.directory, start)
            if not self._files.filesystem.exists(path):
                self._files.let_go(path)
                self._files.open_for_writing(path, exists=False)
                self._starts.add(start)
                made.append(start)
        if made:
            self._found_end = self._found_first = None
        return made

    def truncate(self, queue_offset: int) -> None:
        """Make the queue end at ``queue_offset``: later files go, the rest of its file is zeroed."""
        self._found_first = None
        end = queue_offset * UNIT_SIZE
        self._found_end = None
        for start in sorted(self._starts, reverse=True):
            if start >= end and start > min(self._starts):
                self._files.remove(file_path(self.directory, start))
                self._starts.discard(start)
            elif start + self._file_size > end:
                self._files.zero_tail(self._path_at(start), max(0, end - start))
        self.next_offset = queue_offset

    def forget_end(self) -> None:
        """Look at the files again when the end is asked for next."""
        self._found_end = None

    def forget(self) -> None:
        """Become empty, since the files were deleted; a caller that still holds the queue sees that."""
        self._starts = set()
        self._tail = None
        self._found_end = self._found_first = None
        self.next_offset = 0

    def _path_at(self, start: int) -> Path:
        """Return the path of the file at ``start``: the same object again for the same file.

        Building and hashing a path costs more than writing a unit, so the last one is kept.
        """
        last = self._last_path
        if last is None or last[0] != start:
            last = self._last_path = (start, file_path(self.directory, start))
        return last[1]
