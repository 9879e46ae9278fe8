"""Consume queues, append side: 20-byte units in sparse files of full length.

Units are written with ``pwrite``, never through a map, so that a full disk is an error and not a
signal; files have a broker's full length from the moment they exist, as one hole.

Invariants:
1. One thread writes units (dispatch, or recovery before dispatch starts).
2. ``next_offset`` of a queue moves only after its unit is in the page cache.
3. Files are opened and queues are looked up under the table's ``guard``.
4. A file is in the table's dirty set before anyone can learn that a unit in it counts as dispatched,
   so a sync that starts after reading the dispatched position covers it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import file_path, list_files
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, File, FileSystem

UNIT_DTYPE: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
OPEN_FILES_MAX: Final = 512

Units = npt.NDArray[np.void]  # of UNIT_DTYPE


def as_units(data: bytes | ByteArray) -> Units:
    """See unit bytes as an array of ``(offset, size, tag)``."""
    return np.frombuffer(data, UNIT_DTYPE)


def placeholder_units(damage: tuple[int, int], count: int) -> bytes:
    """Return units for queue offsets whose records lie somewhere in a damaged region of the log.

    Pulling one meets the damage and says so; the queue offsets after it stay where they were.
    """
    begin, end = damage
    units = np.zeros(count, UNIT_DTYPE)
    units["offset"] = begin
    units["size"] = min(max(end - begin, 1), PREFILL_SIZE - 1)
    return units.tobytes()


class ConsumeQueue:
    """Units of one topic's one queue. ``next_offset`` is the queue offset given out next."""

    def __init__(self, table: QueueTable, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.directory = table.directory / topic / str(queue_id)
        self.next_offset = 0
        self._table = table
        self._file_size = table.file_size
        self._starts: set[int] = set()
        self._last_path: tuple[int, Path] | None = None
        self._tail: tuple[int, File] | None = None  # written to last: its start; good in its epoch
        self._tail_epoch = -1
        self.refresh()

    def refresh(self) -> None:
        """List the files; bring those of a wrong length to the right one."""
        self._starts = set()
        for entry in list_files(self._table.filesystem, self.directory):
            if entry.start_offset % self._file_size:
                continue
            if entry.size != self._file_size:
                self._table.repair_length(entry.path, entry.size)
            self._starts.add(entry.start_offset)

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
        with self._table.guard:
            if not self._starts and self.next_offset:
                self.prefill(self.next_offset)
            self.write(self.next_offset, units)
            self.next_offset += len(units) // UNIT_SIZE

    def append_next(self, first: int, units: memoryview) -> bool:
        """Append units from queue offset ``first`` on if that takes but one write to the last file.

        False, and nothing was done, if it takes more. Raises StoreFull and then has moved nothing.
        """
        table = self._table
        with table.guard:
            tail = self._tail
            if tail is None or self._tail_epoch != table.epoch or first != self.next_offset:
                return False
            start, file = tail
            position = first * UNIT_SIZE - start
            if not 0 <= position <= self._file_size - len(units):
                return False
            file.pwrite(units, position)
            self.next_offset = first + len(units) // UNIT_SIZE
        return True

    def write(self, queue_offset: int, units: bytes | memoryview) -> None:
        """Write units from ``queue_offset`` on, making files as they are needed."""
        data = memoryview(units)
        position = queue_offset * UNIT_SIZE
        while data:
            start = position - position % self._file_size
            count = min(len(data), start + self._file_size - position)
            file = self._table.open_for_writing(self, start)
            file.pwrite(data[:count], position - start)
            self._tail, self._tail_epoch = (start, file), self._table.epoch
            data = data[count:]
            position += count

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return ``count`` units from ``queue_offset`` on; zeros where no file is."""
        with self._table.guard:
            return self._read(queue_offset, count)

    def _read(self, queue_offset: int, count: int) -> bytes:
        parts = []
        position = queue_offset * UNIT_SIZE
        end = position + count * UNIT_SIZE
        while position < end:
            start = position - position % self._file_size
            length = min(end, start + self._file_size) - position
            if start in self._starts:
                part = self._table.open_for_reading(self, start).pread(length, position - start)
                parts.append(part.ljust(length, b"\0"))
            else:
                parts.append(bytes(length))
            position += length
        return b"".join(parts)

    def unit(self, queue_offset: int) -> tuple[int, int, int]:
        """Return ``(commit_offset, size, tag_code)`` of one unit; zeros where nothing is."""
        unit = as_units(self.read(queue_offset, 1))[0]
        return int(unit["offset"]), int(unit["size"]), int(unit["tag"])

    def prefill(self, queue_offset: int) -> None:
        """Fill a missing file up to ``queue_offset``, as a broker does when a queue begins late.

        Raises StoreFull and then has left no file: one that exists is never filled up again.
        """
        begin = queue_offset - queue_offset % self.units_per_file
        start = begin * UNIT_SIZE
        if start not in self._starts and queue_offset > begin:
            units = np.zeros(queue_offset - begin, UNIT_DTYPE)
            units["size"] = PREFILL_SIZE
            try:
                self.write(begin, units.tobytes())
            except BaseException:
                if start in self._starts:
                    self._table.remove_file(self, start)
                    self._starts.discard(start)
                raise

    def find_end(self, limit_commit_offset: int) -> int:
        """Return the queue offset after the last unit that lies below ``limit_commit_offset``.

        Binary search, file by file from the newest: units ascend, and what follows them is zeros or
        units of records at or beyond the limit.
        """
        for start in sorted(self._starts, reverse=True):
            file = self._table.open_for_reading(self, start)
            low, high = 0, self._file_size // UNIT_SIZE
            while low < high:
                middle = (low + high) // 2
                unit = as_units(file.pread(UNIT_SIZE, middle * UNIT_SIZE))[0]
                if unit["size"] > 0 and 0 <= unit["offset"] < limit_commit_offset:
                    low = middle + 1
                else:
                    high = middle
            if low:
                return start // UNIT_SIZE + low
        return self.first_offset

    def find_first(self, min_commit_offset: int) -> int:
        """Return the queue offset of the first unit whose record the log still has."""
        low, high = self.first_offset, self.next_offset
        while low < high:
            middle = (low + high) // 2
            commit_offset, size, _ = self.unit(middle)
            if commit_offset < min_commit_offset or size == PREFILL_SIZE:
                low = middle + 1
            else:
                high = middle
        return low

    def truncate(self, queue_offset: int) -> None:
        """Make the queue end at ``queue_offset``: later files go, the rest of its file is zeroed."""
        end = queue_offset * UNIT_SIZE
        for start in sorted(self._starts, reverse=True):
            if start >= end and start > min(self._starts):
                self._table.remove_file(self, start)
                self._starts.discard(start)
            elif start + self._file_size > end:
                self._table.zero_tail(self, start, max(0, end - start))
        self.next_offset = queue_offset

    def forget(self) -> None:
        """Hear that the files were deleted: whoever still holds the queue finds it empty."""
        self._starts = set()
        self._tail = None
        self.next_offset = 0

    def path_at(self, start: int) -> Path:
        """Return the path of the file at ``start``: the same object again for the same file.

        Building and hashing a path costs more than writing a unit, so the last one is kept.
        """
        last = self._last_path
        if last is None or last[0] != start:
            last = self._last_path = (start, file_path(self.directory, start))
        return last[1]

    def _note_file(self, start: int) -> None:
        self._starts.add(start)

    def _has_file(self, start: int) -> bool:
        return start in self._starts


class QueueTable:
    """All consume queues of a store, opened when first asked for, at most so many files open."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, file_size: int) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.file_size = file_size
        self.guard = threading.RLock()
        self.end_commit_offset: int | None = None
        self.epoch = 0  # of one, files that were opened stay open, and those written to dirty
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self._open: OrderedDict[Path, File] = OrderedDict()
        self._dirty_files: set[Path] = set()
        self._dirty_directories: set[Path] = set()

    def get(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; it need not have files yet.

        Once recovery has set ``end_commit_offset``, a queue met for the first time ends after its last
        unit below that offset; before, ``next_offset`` is the caller's to set.
        """
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            with self.guard:
                queue = ConsumeQueue(self, topic, queue_id)
                if self.end_commit_offset is not None:
                    queue.next_offset = queue.find_end(self.end_commit_offset)
                queue = self._queues.setdefault((topic, queue_id), queue)
        return queue

    def count_units(self, limit_commit_offset: int) -> int:
        """Return how many units all queues' files hold before a commit offset; -1 for a lost file."""
        count = 0
        for topic, queue_id in self.on_disk():
            queue = self._queues.get((topic, queue_id)) or ConsumeQueue(self, topic, queue_id)
            starts = queue.file_starts
            if not starts:
                continue
            if starts[-1] - starts[0] != (len(starts) - 1) * self.file_size:
                return -1
            count += queue.find_end(limit_commit_offset) - queue.first_offset
        return count

    def on_disk(self) -> Iterator[tuple[str, int]]:
        """Yield ``(topic, queue_id)`` of every queue directory."""
        for topic in self.filesystem.list_directory(self.directory):
            if not topic.is_directory:
                continue
            for queue in self.filesystem.list_directory(self.directory / topic.name):
                if queue.is_directory and queue.name.isascii() and queue.name.isdigit():
                    yield topic.name, int(queue.name)

    def open_for_writing(self, queue: ConsumeQueue, start: int) -> File:
        """Return the file at ``start`` of ``queue``, created if need be, and mark it dirty."""
        path = queue.path_at(start)
        file = self._open.get(path)
        if file is None:
            if queue._has_file(start):
                file = self.filesystem.open(path, writable=True)
            else:
                self.filesystem.make_directory(queue.directory)
                file = self.filesystem.create(path, self.file_size, allocate=False)
                queue._note_file(start)
                with self.guard:
                    self._dirty_directories.add(queue.directory)
            self._keep(path, file)
        with self.guard:
            self._dirty_files.add(path)
        return file

    def open_for_reading(self, queue: ConsumeQueue, start: int) -> File:
        """Return the existing file at ``start`` of ``queue``."""
        path = file_path(queue.directory, start)
        file = self._open.get(path)
        if file is None:
            file = self.filesystem.open(path, writable=True)
            self._keep(path, file)
        return file

    def _keep(self, path: Path, file: File) -> None:
        self._open[path] = file
        if len(self._open) > OPEN_FILES_MAX:
            _, oldest = self._open.popitem(last=False)
            oldest.close()
            self.epoch += 1

    def repair_length(self, path: Path, size: int) -> None:
        """Give a file the one length a broker accepts; what a short one lost reads as zeros."""
        content = b""
        if size > self.file_size:
            file = self.filesystem.open(path, writable=False)
            content = file.pread(self.file_size, 0)
            file.close()
            self.filesystem.unlink(path)
            file = self.filesystem.create(path, self.file_size, allocate=False)
            file.pwrite(content, 0)
        else:
            file = self.filesystem.open(path, writable=True)
            file.extend(self.file_size)
        file.close()
        with self.guard:
            self._dirty_files.add(path)
            self._dirty_directories.add(path.parent)

    def remove_file(self, queue: ConsumeQueue, start: int) -> None:
        """Unlink one file of a queue."""
        path = file_path(queue.directory, start)
        file = self._open.pop(path, None)
        if file is not None:
            file.close()
        self.filesystem.unlink(path)
        with self.guard:
            self.epoch += 1
            self._dirty_files.discard(path)
            self._dirty_directories.add(queue.directory)

    def zero_tail(self, queue: ConsumeQueue, start: int, position: int) -> None:
        """Make the file at ``start`` read as zeros from ``position`` on, if it does not already."""
        file = self.open_for_reading(queue, start)
        if not np.frombuffer(file.pread(self.file_size - position, position), np.uint8).any():
            return
        file = self.open_for_writing(queue, start)
        file.zero(position, self.file_size - position)

    def remove_topic(self, topic: str) -> int:
        """Delete every queue of a topic; durable on return. Readers' open files stay good.

        Returns how many units the queues held.
        """
        with self.guard:
            unit_count = sum(
                self.get(topic, queue_id).unit_count
                for name, queue_id in self.on_disk()
                if name == topic
            )
            self._remove_topic(topic)
            return unit_count

    def _remove_topic(self, topic: str) -> None:
        directory = self.directory / topic
        self.epoch += 1
        for entry in self.filesystem.list_directory(directory):
            if not entry.is_directory:
                continue
            queue_directory = directory / entry.name
            for file in self.filesystem.list_directory(queue_directory):
                path = queue_directory / file.name
                opened = self._open.pop(path, None)
                if opened is not None:
                    opened.close()
                self.filesystem.unlink(path)
                with self.guard:
                    self._dirty_files.discard(path)
            with self.guard:
                self._dirty_directories.discard(queue_directory)
            self.filesystem.remove_directory(queue_directory)
        if self.filesystem.exists(directory):
            self.filesystem.remove_directory(directory)
            self.filesystem.sync_directory(self.directory)
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).forget()

    def sync(self) -> None:
        """Make every unit written before the call durable. An OSError latches with the caller."""
        with self.guard:
            self.epoch += 1
            files, self._dirty_files = self._dirty_files, set()
            directories, self._dirty_directories = self._dirty_directories, set()
        for path in files:
            try:
                file = self.filesystem.open(path, writable=True)
            except FileNotFoundError:
                continue  # its topic was deleted meanwhile
            try:
                file.sync()
            finally:
                file.close()
        for directory in directories:
            with suppress(FileNotFoundError):
                self.filesystem.sync_directory(directory)

    def close(self) -> None:
        """Close every open file; nothing is synced."""
        self.epoch += 1
        while self._open:
            self._open.popitem()[1].close()
        self._queues.clear()
