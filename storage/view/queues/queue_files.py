"""The units of one consume queue as they were at one look, read through any file system.

Small reads find the ends, so of a queue behind a URL little is fetched. ``consume_queue`` is the other
reading: mapped, and following a queue that grows.

How far a queue in order goes is told by a look at the begin and the end of its one file, without a search
(``queue_head``): no placeholders, units up to the end and zeros after it. All others take a search.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry, list_trimmed_files
from storage.format.consume_entry import LAYOUT, UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX, parse_file_name
from storage.format.store_time import NO_TIME
from storage.kernels.unit_order import visible_end
from storage.view.queues.unit_search import (
    NO_UNIT,
    Unit,
    end_after,
    end_of_units,
    first_unit_at,
    mean_size,
    unit_at,
)
from storage.view.queues.units import as_units

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, FileSystem, ReadFileSystem
    from storage.files.only_files import OnlyFile
    from storage.view.log.files import ListedLog

UnitArray = npt.NDArray[np.void]

SAMPLES: Final = 64
UNITS_MAX: Final = 8_192  # read at once
BESIDE: Final = 2  # units that tell of those next to them
UNITS_FIRST: Final = 64  # of a walk, which may end soon
HEAD_BYTES: Final = 4096  # a page: most files have no more data
QUEUES_AT_ONCE: Final = 256
SETTLE_TRIES: Final = 3
SETTLE_PAUSE_S: Final = 0.001


@dataclass(frozen=True)
class QueueFiles:
    """The units ``[begin, end)`` of a queue point into the readable part of the log."""

    filesystem: ReadFileSystem
    directory: Path
    files: tuple[FileEntry, ...] = ()
    begin: int = 0
    end: int = 0

    @classmethod
    def whole(cls, filesystem: ReadFileSystem, directory: Path) -> QueueFiles:
        """List a queue's files to read any unit of them; ``begin`` and ``end`` are 0."""
        return cls(filesystem, directory, tuple(list_trimmed_files(filesystem, directory)))

    @classmethod
    def open(
        cls, filesystem: ReadFileSystem, directory: Path, min_offset: int, end_offset: int
    ) -> QueueFiles:
        """Look where the units that point into ``[min_offset, end_offset)`` of the log lie."""
        queue = cls.whole(filesystem, directory)
        if not queue.files:
            return queue
        end = end_of_units(queue, end_offset)
        begin = first_unit_at(queue, queue.files[0].start_offset // UNIT_SIZE, end, min_offset)
        return replace(queue, begin=begin, end=end)

    def settled(self, log: ListedLog, topic: str) -> QueueFiles:
        """Return the queue, without its last unit if that is only being written.

        A unit is 20 bytes that are not stored at once. Units of records below the limit that the queue was opened
        with are whole, so one that is half written points before its record: not after the unit before it.
        """
        last = self.end - 1
        unit = self.unit(last)
        if last < self.begin or (
            last > self.begin and unit.commit_offset > self.unit(last - 1).commit_offset
        ):
            return self
        queue_offset = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else last
        for _ in range(SETTLE_TRIES):
            if log.record_time_ms(unit.commit_offset, unit.size, queue_offset) != NO_TIME:
                return self
            time.sleep(SETTLE_PAUSE_S)
            if self.unit(last) != unit:
                return replace(self, end=last)
        return self

    def grown(self, min_offset: int, end_offset: int) -> QueueFiles:
        """Look for units added since, which point below ``end_offset``; ``begin`` stays.

        Returns itself if there are none. Raises FileNotFoundError if the queue has gone.
        """
        if self.begin == self.end:
            return QueueFiles.open(self.filesystem, self.directory, min_offset, end_offset)
        queue = self
        while True:
            end = end_after(queue, queue.end, end_offset)
            queue = queue if end == queue.end else replace(queue, end=end)
            if end < queue.files[-1].end_offset // UNIT_SIZE:
                return queue
            listed = tuple(list_trimmed_files(self.filesystem, self.directory))
            if listed == queue.files:
                return queue
            queue = replace(queue, files=listed)

    def unit(self, queue_offset: int) -> Unit:
        """Return one unit; zeros where there is none."""
        position = queue_offset * UNIT_SIZE
        number = bisect_right(self.files, position, key=attrgetter("end_offset"))
        if number == len(self.files) or self.files[number].start_offset > position:
            return NO_UNIT
        data = self._read(self.files[number], position, UNIT_SIZE)
        return Unit(*LAYOUT.unpack(data)) if len(data) == UNIT_SIZE else NO_UNIT

    def holds(self, queue_offset: int, commit_offset: int) -> bool:
        """Whether the unit there points to a commit offset; a hole is no unit of record 0."""
        unit = self.unit(queue_offset)
        return unit.size > 0 and unit.commit_offset == commit_offset

    def window(self, begin: int, end: int) -> tuple[ByteArray, int]:
        """Return units ``[begin, end)`` of the file that ``begin`` is in, two beside them, and the first's number."""
        number = bisect_right(self.files, begin * UNIT_SIZE, key=attrgetter("end_offset"))
        if number == len(self.files) or self.files[number].start_offset > begin * UNIT_SIZE:
            return np.empty(0, np.uint8), begin
        file = self.files[number]
        low = max((begin - BESIDE) * UNIT_SIZE, file.start_offset)
        high = min((end + BESIDE) * UNIT_SIZE, file.end_offset)
        return np.frombuffer(self._read(file, low, high - low), np.uint8), low // UNIT_SIZE

    def units(self, first: int, count: int) -> UnitArray:
        """Return up to ``count`` units from ``first`` on; what is missing between files is zeros."""
        parts: list[bytes] = []
        position, left = first * UNIT_SIZE, count * UNIT_SIZE
        holding = bisect_right(self.files, position, key=lambda file: file.end_offset)
        for file in self.files[holding:]:
            if left <= 0:
                break
            if file.start_offset > position:
                gap = min(file.start_offset - position, left)
                parts.append(bytes(gap))
                position, left = position + gap, left - gap
                if left <= 0:
                    break
            data = self._read(file, position, min(left, file.end_offset - position))
            parts.append(data)
            position, left = position + len(data), left - len(data)
        return as_units(b"".join(parts))

    def units_into(self, begin: int, end: int) -> Iterator[tuple[npt.NDArray[np.int64], UnitArray]]:
        """Yield the units that point into ``[begin, end)`` of the log, with their queue offsets.

        At most ``UNITS_MAX`` at a time; those that are lost with their file are left out.
        """
        at, count = first_unit_at(self, self.begin, self.end, begin), UNITS_FIRST
        while at < self.end:
            units = self.units(at, min(count, self.end - at))
            after = np.flatnonzero(units["offset"] >= end)
            found = np.flatnonzero(units["size"][: after[0] if len(after) else None])
            if len(found):
                yield at + found, units[found]
            if len(after) or not len(units):
                return
            at, count = at + len(units), min(count * 8, UNITS_MAX)

    def _read(self, entry: FileEntry, position: int, length: int) -> bytes:
        file = self.filesystem.open(entry.path, writable=False)
        try:
            return file.pread(length, position - entry.start_offset)
        finally:
            file.close()

    def next_file_offset(self, queue_offset: int) -> int | None:
        """Return the first queue offset of the next file that is there, None if none is."""
        starts = (file.start_offset // UNIT_SIZE for file in self.files)
        return next((start for start in starts if start > queue_offset), None)

    def next_there(self, queue_offset: int) -> int:
        """Return the first queue offset from this one on whose file is there; the end of all if none is."""
        for file in self.files:
            if file.end_offset // UNIT_SIZE > queue_offset:
                return max(file.start_offset // UNIT_SIZE, queue_offset)
        return max(self.end, queue_offset)

    def last_there(self, queue_offset: int) -> int:
        """Return the last queue offset up to this one whose file is there, -1 if none is."""
        for file in reversed(self.files):
            if file.start_offset // UNIT_SIZE <= queue_offset:
                return min(file.end_offset // UNIT_SIZE - 1, queue_offset)
        return -1

    def mean_size(self, begin: int, end: int) -> float:
        """Estimate the size of the records of ``[begin, end)`` from units spread over it."""
        return mean_size(self.unit, begin, end, SAMPLES)


class QueueHead(NamedTuple):
    """Queue offsets ``[begin, end)`` of a file, and the first and the last unit."""

    begin: int
    end: int
    first: Unit
    last: Unit


def queue_head(file: OnlyFile | None, limit_commit_offset: int) -> QueueHead | None:
    """Return where a queue's units of records that end at or before a limit are; None if that takes a search."""
    start = None if file is None else parse_file_name(file.name)
    if file is None or start is None or start % UNIT_SIZE:
        return None
    units = np.frombuffer(file.head, np.uint8)
    first = unit_at(units, 0) if len(units) >= UNIT_SIZE else None
    if first is None or first.is_prefill or first.size <= 0:
        return None
    index = 0
    if file.tail:
        index = -(-file.tail_position // UNIT_SIZE)
        units = np.frombuffer(file.tail, np.uint8, offset=index * UNIT_SIZE - file.tail_position)
    end = int(visible_end(units, 0, len(units) // UNIT_SIZE, limit_commit_offset))
    if end == 0 or units[end * UNIT_SIZE :].any():
        return None
    begin = start // UNIT_SIZE
    return QueueHead(begin, begin + index + end, first, unit_at(units, end - 1))


def heads(
    filesystem: FileSystem, directory: Path, queue_ids: Sequence[int]
) -> Iterator[tuple[str, int, OnlyFile | None]]:
    """Yield queues of a topic with the only file of each; None for one that has no file or more of them.

    Of a file up to ``HEAD_BYTES`` are read at its begin, and as many at its end.
    """
    for begin in range(0, len(queue_ids), QUEUES_AT_ONCE):
        some = queue_ids[begin : begin + QUEUES_AT_ONCE]
        files = filesystem.only_files(directory, list(map(str, some)), HEAD_BYTES)
        yield from zip(repeat(directory.name), some, files, strict=False)


class HeadUnits:
    """The units of a queue whose only file has no others than those at its head."""

    def __init__(self, file: OnlyFile, head: QueueHead) -> None:
        self._units = np.frombuffer(file.head, np.uint8)
        self._begin = head.begin

    def unit(self, queue_offset: int) -> Unit | None:
        """Return one unit."""
        return unit_at(self._units, queue_offset - self._begin)
