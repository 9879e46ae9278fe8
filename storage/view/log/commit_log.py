"""The commit log as it is read: which ranges of it exist, and the bytes of each file.

``LogView`` answers by commit offset, whatever its files lie on. ``CommitLogView`` maps the files of a live
store and follows it. ``ListedLog`` has the files as they were listed once, over any file system: of a file
behind a URL only what is asked for is fetched.

A reader owns nothing here. Files appear and go while it reads; a view of a file that has gone stays
readable for as long as it is held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import (
    FileEntry,
    ReadOnlyMappedFileQueue,
    list_trimmed_files,
)
from storage.format.store_time import HEAD_SIZE, NO_TIME, store_time_of
from storage.kernels.columns import CHECK_ALL, ByteArray
from storage.kernels.lookup import check_one
from storage.view.log.walk import RecordRun, walk_range

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem, Positions, ReadFileSystem

EVERYTHING: Final = (1 << 63) - 1  # a visible offset that hides nothing
LENGTH_SIZE: Final = 4  # of a record's first field


class LogSpan(NamedTuple):
    """One file of the log: its bytes, and the part ``[start_offset, end_offset)`` that is visible."""

    array: ByteArray
    start_offset: int
    end_offset: int


class LogPart(NamedTuple):
    """Commit offsets ``[begin_offset, end_offset)`` in one file: ``data[0]`` is at ``data_offset``."""

    data: ByteArray
    data_offset: int
    begin_offset: int
    end_offset: int


class LogView(ABC):
    """The log by commit offset; also the files that a walk goes through."""

    generation = 0
    """A number that changes when files come or go."""

    @property
    @abstractmethod
    def entries(self) -> Sequence[FileEntry]:
        """The files in order of offset."""

    @abstractmethod
    def find(self, offset: int) -> LogSpan | None:
        """Return the file that holds the byte at a commit offset; None where nothing is or may be read."""

    @abstractmethod
    def next_start(self, offset: int) -> int | None:
        """Return where the first file after a commit offset starts, None if there is none."""

    def part(self, begin_offset: int, end_offset: int) -> LogPart | None:
        """Return what one file has of a range from its begin on; None if none has. Raises FileNotFoundError."""
        span = self.find(begin_offset)
        if span is None:
            return None
        end = min(span.end_offset, end_offset)
        return LogPart(span.array, span.start_offset, begin_offset, end)

    def bytes_at(self, commit_offset: int, size: int) -> memoryview | None:
        """Return ``size`` bytes, unchecked; None unless they all lie in one file."""
        span = self.find(commit_offset)
        if span is None or size < 0 or commit_offset + size > span.end_offset:
            return None
        position = commit_offset - span.start_offset
        return span.array.data[position : position + size]

    def parts(self, begin_offset: int, end_offset: int) -> Iterator[LogPart]:
        """Yield what there is of ``[begin_offset, end_offset)``, file by file. Raises FileNotFoundError."""
        offset: int | None = begin_offset
        while offset is not None and offset < end_offset:
            part = self.part(offset, end_offset)
            if part is not None:
                yield part
            offset = self.next_start(offset) if part is None else part.end_offset

    def record_time_ms(
        self, commit_offset: int, size: int | None = None, queue_offset: int = -1
    ) -> int:
        """Return when the record at a commit offset was stored; NO_TIME if no head of one is there.

        ``size`` is what a unit says of it, None where it is known from nowhere else. A head that names another
        queue offset is not its own, unless that is below 0.
        """
        head = self.bytes_at(commit_offset, HEAD_SIZE)
        if head is None:
            return NO_TIME
        named = int.from_bytes(head[:LENGTH_SIZE], "big") if size is None else size
        return store_time_of(head, commit_offset, named, queue_offset)

    def next_there(self, commit_offset: int) -> int | None:
        """Return where the log has bytes from ``commit_offset`` on; None after its last file."""
        ends = (
            max(commit_offset, entry.start_offset)
            for entry in self.entries
            if entry.end_offset > commit_offset
        )
        return next(ends, None)


def record_runs(
    log: LogView, begin_offset: int, end_offset: int, *, checks: int = CHECK_ALL
) -> Iterator[RecordRun]:
    """Yield the runs of intact records of a range, which begins where a record or a file does.

    Each is good until the next one; ``checks`` are those of ``walk_range``.
    """
    for part in log.parts(begin_offset, end_offset):
        for step in walk_range(*part, checks=checks):
            if isinstance(step, RecordRun):
                yield step


class CommitLogView(LogView):
    """Read access to ``commitlog/`` within ``[min_offset, visible_offset)``, of a store that others write."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, mapped_files_max: int) -> None:
        self._files = ReadOnlyMappedFileQueue(
            filesystem, directory, file_size=0, mapped_files_max=mapped_files_max
        )
        self.min_offset = 0
        self.visible_offset = EVERYTHING
        # Starts and ends of the ranges that exist; replaced as one, for lock-free readers. What is
        # visible of them is for the queues to say: no unit is served that points further.
        self.ranges: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] = (
            np.empty(0, np.int64),
            np.empty(0, np.int64),
        )
        self._bounds = (-1, -1)
        self.set_bounds(0, EVERYTHING)

    @property
    def bounds(self) -> tuple[int, int]:
        """What ``set_bounds`` was last given."""
        return self._bounds

    def set_bounds(self, min_offset: int, visible_offset: int) -> None:
        """Say what may be read; lists the directory again when files beyond the known are needed.

        Files get their names in order, so one that is missing between others is lost.
        """
        known_begin, known_end = self._files.first_offset, self._files.end_offset
        changed = min_offset != self._bounds[0]
        if visible_offset > known_end or min_offset > known_begin:
            changed = self._files.refresh() or changed
        self._bounds = (min_offset, visible_offset)
        self.visible_offset = visible_offset
        if changed:
            self._rebuild()

    def refresh(self) -> None:
        """List the directory again."""
        if self._files.refresh():
            self._rebuild()

    def _rebuild(self) -> None:
        self.generation += 1
        min_offset = self._bounds[0]
        entries = self._files.entries
        self.min_offset = max(min_offset, entries[0].start_offset if entries else 0)
        # What is too long in a file does not hide the file after it.
        borders = [entry.start_offset for entry in entries[1:]] + [EVERYTHING]
        spans = [
            (max(entry.start_offset, min_offset), min(entry.start_offset + entry.size, border))
            for entry, border in zip(entries, borders[: len(entries)], strict=True)
        ]
        spans = [span for span in spans if span[0] < span[1]]
        self.ranges = (
            np.array([start for start, _ in spans], np.int64),
            np.array([end for _, end in spans], np.int64),
        )

    @property
    def end_offset(self) -> int:
        """End of what is visible; 0 without files."""
        ends = self.ranges[1]
        return min(int(ends[-1]), self.visible_offset) if len(ends) else 0

    @property
    def stated_end(self) -> int:
        """End of what is said to be visible; of what there is where nobody says it."""
        return self.end_offset if self.visible_offset == EVERYTHING else self.visible_offset

    @property
    def entries(self) -> list[FileEntry]:
        """The files as last listed, in order of offset."""
        return self._files.entries

    def find(self, offset: int) -> LogSpan | None:
        """Return the file that holds a commit offset; None where nothing is or may be read."""
        if not self.min_offset <= offset < self.visible_offset:
            return None
        mapped = self._files.find(offset)
        if mapped is None:
            self.refresh()
            mapped = self._files.find(offset)
            if mapped is None:
                return None
        end = min(mapped.end_offset, self.visible_offset)
        following = self._files.next_start(offset)
        return LogSpan(
            mapped.array, mapped.start_offset, end if following is None else min(end, following)
        )

    def next_start(self, offset: int) -> int | None:
        """Return where the first file after a commit offset starts, None if there is none by now."""
        start = self._files.next_start(offset)
        if start is None:
            self.refresh()
            start = self._files.next_start(offset)
        return start

    def parts(self, begin_offset: int, end_offset: int) -> Iterator[LogPart]:
        """Yield what is visible of ``[begin_offset, end_offset)``, file by file."""
        begin, end = max(begin_offset, self.min_offset), min(end_offset, self.visible_offset)
        return super().parts(begin, end)

    def check(self, commit_offset: int) -> tuple[int, int]:
        """Check the record at ``commit_offset``: ``(size, stop)`` as ``check_one`` gives them."""
        span = self.find(commit_offset)
        if span is None:
            return 0, -1
        size, stop = check_one(
            span.array,
            commit_offset - span.start_offset,
            span.end_offset - span.start_offset,
            commit_offset,
        )
        return int(size), int(stop)

    def close(self) -> None:
        """Let go of every map."""
        self._files.close()


class ListedLog(LogView):
    """Files as they were listed once, in order of offset; each ends where the next one starts, however long it is.

    A walk of them maps or fetches a file as a whole.
    """

    def __init__(self, filesystem: ReadFileSystem, directory: Path) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self._whole: LogSpan | None = None

    @cached_property
    def entries(self) -> list[FileEntry]:
        """The files that hold anything."""
        return [file for file in list_trimmed_files(self.filesystem, self.directory) if file.size]

    @cached_property
    def _starts(self) -> list[int]:
        return [entry.start_offset for entry in self.entries]

    @property
    def start_offset(self) -> int:
        """Where the oldest file starts, 0 without files."""
        return self.entries[0].start_offset if self.entries else 0

    @property
    def end_offset(self) -> int:
        """Where the newest file ends, 0 without files."""
        return self.entries[-1].end_offset if self.entries else 0

    def entry_of(self, commit_offset: int) -> FileEntry | None:
        """Return the file that holds the byte at a commit offset."""
        number = bisect_right(self._starts, commit_offset) - 1
        if number < 0:
            return None
        entry = self.entries[number]
        return entry if commit_offset < entry.end_offset else None

    def bytes_at(self, commit_offset: int, size: int) -> memoryview | None:
        """Return ``size`` bytes, unchecked and read by themselves; None unless they all lie in one file."""
        entry = self.entry_of(commit_offset)
        if entry is None or commit_offset + size > entry.end_offset:
            return None
        with suppress(FileNotFoundError):
            file = self.filesystem.open(entry.path, writable=False)
            try:
                data = file.pread(size, commit_offset - entry.start_offset)
            finally:
                file.close()
            return memoryview(data) if len(data) == size else None
        return None

    def map(
        self, entry: FileEntry, begins: Positions = 0, ends: Positions | None = None
    ) -> ByteArray:
        """Return one file, at most as long as its entry; positions are the file's own.

        See ``ReadFileSystem.map_ranges``. Raises FileNotFoundError.
        """
        return self.filesystem.map_ranges(entry.path, begins, ends)[: entry.size]

    def part(self, begin_offset: int, end_offset: int) -> LogPart | None:
        """Return what one file has of a range from its begin on, which alone is fetched."""
        entry = self.entry_of(begin_offset)
        if entry is None:
            return None
        start, end = entry.start_offset, min(end_offset, entry.end_offset)
        return LogPart(self.map(entry, begin_offset - start, end - start), start, begin_offset, end)

    def find(self, offset: int) -> LogSpan | None:
        """Return the file that holds the byte at a commit offset, all of it; None also if it is gone."""
        if self._whole is None or not self._whole.start_offset <= offset < self._whole.end_offset:
            entry = self.entry_of(offset)
            self._whole = None
            if entry is None:
                return None
            data: ByteArray = np.empty(0, np.uint8)
            with suppress(FileNotFoundError):
                data = self.map(entry)
            start = entry.start_offset
            self._whole = LogSpan(data, start, start + len(data))
        return self._whole if offset < self._whole.end_offset else None

    def next_start(self, offset: int) -> int | None:
        """Return where the first file after a commit offset starts, None if there is none."""
        number = bisect_right(self._starts, offset)
        return self._starts[number] if number < len(self._starts) else None
