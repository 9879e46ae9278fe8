"""The units of one consume queue as they were at one look, read through any file system.

Small reads find the ends, so of a queue behind a URL little is fetched. ``consume_queue`` is the other
reading: mapped, and following a queue that grows.

How far a queue in order goes is told by a look at the begin and the end of its one file, without a search
(``queue_head``): no placeholders, units up to the end and zeros after it. All others take a search.
"""

from __future__ import annotations

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
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name
from storage.kernels.unit_order import visible_end
from storage.view.queues.unit_search import (
    Unit,
    UnitSource,
    end_of_units,
    first_unit_at,
    mean_size,
    unit_at,
)

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, FileSystem, ReadFileSystem
    from storage.files.only_files import OnlyFile
    from storage.view.queues.units import Units

SAMPLES: Final = 64
UNITS_MAX: Final = 8_192  # read at once
BESIDE: Final = 2  # units that tell of those next to them
UNITS_FIRST: Final = 64  # of a walk, which may end soon
HEAD_BYTES: Final = 4096  # a page: most files have no more data
QUEUES_AT_ONCE: Final = 256


@dataclass(frozen=True)
class QueueFiles(UnitSource):
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

    def window(self, begin: int, end: int) -> tuple[ByteArray, int]:
        """Return units ``[begin, end)`` of the file that ``begin`` is in, two beside them, and the first's number."""
        number = bisect_right(self.files, begin * UNIT_SIZE, key=attrgetter("end_offset"))
        if number == len(self.files) or self.files[number].start_offset > begin * UNIT_SIZE:
            return np.empty(0, np.uint8), begin
        file = self.files[number]
        low = max((begin - BESIDE) * UNIT_SIZE, file.start_offset)
        high = min((end + BESIDE) * UNIT_SIZE, file.end_offset)
        return np.frombuffer(self._read(file, low, high - low), np.uint8), low // UNIT_SIZE

    def units_into(self, begin: int, end: int) -> Iterator[tuple[npt.NDArray[np.int64], Units]]:
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
            if len(after):
                return
            at, count = at + len(units), min(count * 8, UNITS_MAX)

    def _read(self, entry: FileEntry, position: int, length: int) -> bytes:
        file = self.filesystem.open(entry.path, writable=False)
        try:
            return file.pread(length, position - entry.start_offset)
        finally:
            file.close()

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

    def unit(self, queue_offset: int) -> Unit:
        """Return one unit."""
        return unit_at(self._units, queue_offset - self._begin)
