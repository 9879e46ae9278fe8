"""The commit log as a reader sees it: which ranges of it exist, and the bytes of one file.

A reader owns nothing here. Files appear and go while it reads; a view of a file that has gone stays
readable for as long as it is held.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.filesystem import ByteArray, FileSystem
from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.format.store_time import HEAD_SIZE, NO_TIME, store_time_of
from storage.kernels.lookup import check_one
from storage.view.log.parts import LogPart

EVERYTHING: Final = (1 << 63) - 1  # a visible offset that hides nothing


class LogSpan(NamedTuple):
    """One file of the log: its bytes, and the part ``[start_offset, end_offset)`` that is visible."""

    array: ByteArray
    start_offset: int
    end_offset: int


class CommitLogView:
    """Read access to ``commitlog/`` within ``[min_offset, visible_offset)``."""

    def __init__(self, filesystem: FileSystem, directory: Path, *, mapped_files_max: int) -> None:
        self._files = ReadOnlyMappedFileQueue(
            filesystem, directory, file_size=0, mapped_files_max=mapped_files_max
        )
        self.min_offset = 0
        self.visible_offset = EVERYTHING
        self.generation = 0  # changes when files come or go
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
    def file_starts(self) -> list[int]:
        """Where each file starts."""
        return [entry.start_offset for entry in self._files.entries]

    @property
    def file_size(self) -> int:
        """Length of the oldest file, which all have; 0 without files."""
        entries = self._files.entries
        return entries[0].size if entries else 0

    def span(self, commit_offset: int) -> LogSpan | None:
        """Return the file that holds ``commit_offset``; None where nothing is or may be read."""
        if not self.min_offset <= commit_offset < self.visible_offset:
            return None
        mapped = self._files.find(commit_offset)
        if mapped is None:
            self.refresh()
            mapped = self._files.find(commit_offset)
            if mapped is None:
                return None
        end = min(mapped.end_offset, self.visible_offset)
        following = self._files.next_start(commit_offset)
        return LogSpan(
            mapped.array, mapped.start_offset, end if following is None else min(end, following)
        )

    def next_start(self, commit_offset: int) -> int | None:
        """Return where the first file after ``commit_offset`` starts, None if there is none."""
        return self._files.next_start(commit_offset)

    def bytes_at(self, commit_offset: int, size: int) -> memoryview | None:
        """Return ``size`` bytes, unchecked; None unless they all lie in one file."""
        span = self.span(commit_offset)
        if span is None or size < 0 or commit_offset + size > span.end_offset:
            return None
        position = commit_offset - span.start_offset
        return span.array.data[position : position + size]

    def parts(self, begin_offset: int, end_offset: int) -> Iterator[LogPart]:
        """Yield what is visible of ``[begin_offset, end_offset)``, file by file."""
        offset, end = max(begin_offset, self.min_offset), min(end_offset, self.visible_offset)
        while offset < end:
            span = self.span(offset)
            if span is None:
                following = self.next_start(offset)
                if following is None:
                    return
                offset = following
                continue
            yield LogPart(span.array, span.start_offset, offset, min(span.end_offset, end))
            offset = span.end_offset

    def check(self, commit_offset: int) -> tuple[int, int]:
        """Check the record at ``commit_offset``: ``(size, stop)`` as ``check_one`` gives them."""
        span = self.span(commit_offset)
        if span is None:
            return 0, -1
        size, stop = check_one(
            span.array,
            commit_offset - span.start_offset,
            span.end_offset - span.start_offset,
            commit_offset,
        )
        return int(size), int(stop)

    def record_time_ms(self, commit_offset: int, size: int, queue_offset: int = -1) -> int:
        """Return when the record at a commit offset was stored; NO_TIME if no head of one is there.

        A head that names another queue offset is not its own, unless that is below 0.
        """
        head = self.bytes_at(commit_offset, HEAD_SIZE)
        return NO_TIME if head is None else store_time_of(head, commit_offset, size, queue_offset)

    def next_there(self, commit_offset: int) -> int | None:
        """Return where the log has bytes from ``commit_offset`` on; None after its last file."""
        span = self.span(commit_offset)
        return self.next_start(commit_offset) if span is None else commit_offset

    def close(self) -> None:
        """Let go of every map."""
        self._files.close()
