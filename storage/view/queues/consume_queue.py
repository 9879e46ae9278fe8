"""One consume queue as a reader sees it: where it begins, where it ends, its units.

The end is found by walking on from the last known one, so a pull at the tail costs the units that
came since. Only units whose records end at or before the visible offset count. What the files hold wrongly,
or no more, is rebuilt from the log.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.filesystem import ByteArray, FileSystem
from storage.files.mapped_file import ReadOnlyMappedFile
from storage.files.mapped_file_queue import FileEntry, ReadOnlyMappedFileQueue
from storage.files.system.os_file import PAGE_SIZE
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels.unit_order import UNITS_BESIDE
from storage.view.log.commit_log import EVERYTHING, CommitLogView
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits, UnitSpan
from storage.view.queues.unit_search import UnitSource, end_after, end_of_units, first_unit_at

MAPPED_FILES_OF_A_QUEUE: Final = 4
NO_UNITS: Final = np.empty(0, np.uint8)


def _readable(mapped: ReadOnlyMappedFile, begin: int, end: int) -> ByteArray:
    """Return a file's units up to ``end``, or to its own, or up to those that cannot be touched.

    A queue is followed by a hole, and on a full file system in memory a hole cannot be read.
    """
    at = begin * UNIT_SIZE
    until = min(-(-end * UNIT_SIZE // PAGE_SIZE) * PAGE_SIZE, mapped.size)
    if not mapped.can_read(at, until):
        page_end = min((at // PAGE_SIZE + 1) * PAGE_SIZE, until)
        until = page_end if mapped.can_read(at, page_end) else at
    return mapped.array[:until]


class ConsumeQueueView(UnitSource):
    """Read access to ``consumequeue/<topic>/<queue_id>/``, its ``directory``. Safe to use from several threads.

    ``rebuilt`` has units as the ``log`` has them, for those that are doubtful; ``since`` and ``check`` are for it.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log: CommitLogView,
        *,
        since: Callable[[], int] = lambda: 0,
        check: Callable[[int], None] = lambda _: None,
        mapped_files_max: int = MAPPED_FILES_OF_A_QUEUE,
    ) -> None:
        self.directory = directory
        self.topic = directory.parent.name
        self._log = log
        view = weakref.proxy(self)  # a view that is let go of gives its maps back at once
        self.rebuilt = RebuiltUnits(
            log, self.topic, int(directory.name), view,
            lambda: view._extent(),  # noqa: PLW0108  a bound method would hold the view
            since=since, check=check,
        )  # fmt: skip
        self._files = ReadOnlyMappedFileQueue(
            filesystem, directory, file_size=0, mapped_files_max=mapped_files_max
        )
        self._guard = threading.Lock()
        self._end: int | None = None
        self._end_is_for = EVERYTHING  # visible commit offset that the end was last looked for with
        self._min_key: tuple[int, int] | None = None
        self._min = 0

    @property
    def files(self) -> list[FileEntry]:
        """The queue's files as last listed, in order."""
        return self._files.entries

    def close(self) -> None:
        """Let go of every map."""
        self._files.close()

    def max_offset(self, visible_commit_offset: int, at: int = EVERYTHING) -> int:
        """Return the queue offset after the last visible unit; 0 of a queue without files.

        It is looked for again where more is visible than before, or ``at`` is not below the last known one.
        """
        with self._guard:
            end = self._end
            if end is None:
                end = end_of_units(self, visible_commit_offset)
            elif at < end and visible_commit_offset == self._end_is_for != EVERYTHING:
                return end
            end = self._walk_on(end, visible_commit_offset)
            self._end, self._end_is_for = end, visible_commit_offset
            return end

    def _walk_on(self, end: int, visible_commit_offset: int) -> int:
        end = end_after(self, end, visible_commit_offset)
        position = end * UNIT_SIZE
        if self._files.find(position) is None:
            # Only at a border between files can there be a file that was not listed yet.
            if self._files.refresh() and self._files.find(position) is not None:
                return self._walk_on(end, visible_commit_offset)
            if self._files.next_start(position) is not None:  # files in between were deleted
                return end_of_units(self, visible_commit_offset)
        return end

    def min_offset(self, min_commit_offset: int, max_offset: int) -> int:
        """Return the first queue offset whose record lies at or after ``min_commit_offset``.

        ``max_offset`` if no record is left. Pre-fill units are not counted.
        """
        with self._guard:
            key = min_commit_offset, self._first_start
            if key == self._min_key and (self._min < max_offset or max_offset == 0):
                return self._min
            if self._min_key is None or self._min_key[0] != min_commit_offset:
                self._files.refresh()  # files whose records were deleted go, too
            found = self._find_first(min_commit_offset, max_offset)
            self._min_key, self._min = (min_commit_offset, self._first_start), found
            return found

    @property
    def _first_start(self) -> int:
        entries = self._files.entries
        return entries[0].start_offset if entries else -1

    def _find_first(self, min_commit_offset: int, max_offset: int) -> int:
        start = self._first_start
        first = max_offset if start < 0 else start // UNIT_SIZE
        return first_unit_at(self, first, max_offset, min_commit_offset)

    def span(self, queue_offset: int, max_offset: int) -> UnitSpan | None:
        """Return the file of units that ``queue_offset`` is in; None if that file is not there."""
        if queue_offset < 0 or queue_offset >= max_offset:
            return None
        mapped = self._files.find(queue_offset * UNIT_SIZE)
        if mapped is None:
            return None
        first = mapped.start_offset // UNIT_SIZE
        end = min(max_offset - first, mapped.size // UNIT_SIZE)
        if queue_offset - first >= end:
            return None
        return UnitSpan(mapped.array, first, queue_offset - first, end)

    def window(self, begin: int, end: int) -> tuple[ByteArray, int]:
        """Return the units of the file that ``begin`` is in, to some after ``end``, and the number of its first."""
        mapped = self._files.find(begin * UNIT_SIZE)
        if mapped is None:
            return NO_UNITS, begin
        first = mapped.start_offset // UNIT_SIZE
        return _readable(mapped, begin - first, end - first + UNITS_BESIDE), first

    def _extent(self) -> Extent:
        log = self._log
        end = self.max_offset(log.visible_offset)
        begin = self.min_offset(log.min_offset, end)
        return Extent(begin, end, log.min_offset, log.end_offset)

    @property
    def is_light(self) -> bool:
        """Whether its records name offsets of other queues."""
        return self.topic.startswith(LIGHT_QUEUE_PREFIX)
