"""One consume queue as files: which queue offsets it covers, and where each one's record lies."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry, list_trimmed_files
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.view.units import UNIT_DTYPE

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, ReadFileSystem

Unit = tuple[int, int, int]
NO_UNIT: Unit = (0, 0, 0)


@dataclass(frozen=True)
class QueueFiles:
    """The units ``[begin, end)`` of a queue point into the readable part of the log."""

    filesystem: ReadFileSystem
    files: tuple[FileEntry, ...]
    begin: int
    end: int

    @classmethod
    def whole(cls, filesystem: ReadFileSystem, directory: Path) -> QueueFiles:
        """List a queue's files to read any unit of them; ``begin`` and ``end`` are 0."""
        return cls(filesystem, tuple(list_trimmed_files(filesystem, directory)), 0, 0)

    @classmethod
    def open(
        cls, filesystem: ReadFileSystem, directory: Path, min_offset: int, end_offset: int
    ) -> QueueFiles:
        """Look where the units that point into ``[min_offset, end_offset)`` of the log lie.

        Units are in the order of the log, so both ends are found by halving.
        """
        probe = cls.whole(filesystem, directory)
        files = probe.files
        if not files:
            return probe
        low, high = files[0].start_offset // UNIT_SIZE, files[-1].end_offset // UNIT_SIZE

        def is_readable(unit: Unit) -> bool:
            offset, size, _ = unit
            if offset == 0 and size == PREFILL_SIZE:
                return True
            return size > 0 and 0 <= offset <= end_offset - size

        def is_old(unit: Unit) -> bool:
            offset, size, _ = unit
            return (offset == 0 and size == PREFILL_SIZE) or offset < min_offset

        end = probe._halve(low, high, is_readable)
        begin = probe._halve(low, end, is_old)
        return cls(filesystem, files, begin, end)

    def _halve(self, low: int, high: int, holds: Callable[[Unit], bool]) -> int:
        """Return the first number in ``[low, high)`` whose unit does not hold; ``high`` if all do."""
        while low < high:
            middle = (low + high) // 2
            if holds(self.unit(middle)):
                low = middle + 1
            else:
                high = middle
        return low

    def unit(self, queue_offset: int) -> Unit:
        """Return commit offset, size and tag code of one unit; zeros where there is none."""
        units = self.units(queue_offset, 1)
        return units[0].item() if len(units) else NO_UNIT

    def units(self, first: int, count: int) -> npt.NDArray[np.void]:
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
        return units_in(b"".join(parts))

    def _read(self, entry: FileEntry, position: int, length: int) -> bytes:
        file = self.filesystem.open(entry.path, writable=False)
        try:
            return file.pread(length, position - entry.start_offset)
        finally:
            file.close()

    def find_commit_offset(self, commit_offset: int) -> int:
        """Return the first queue offset whose record is at or behind ``commit_offset``."""
        return self._halve(self.begin, self.end, lambda unit: unit[0] < commit_offset)

    def mean_size(self, begin: int, end: int, samples: int = 64) -> float:
        """Estimate the size of the records of ``[begin, end)`` from units spread over it."""
        if begin >= end:
            return 0.0
        places = np.unique(np.linspace(begin, end - 1, min(samples, end - begin)).astype(np.int64))
        sizes = [self.unit(int(place))[1] for place in places]
        return sum(sizes) / len(sizes)


def units_in(data: bytes | ByteArray) -> npt.NDArray[np.void]:
    """See bytes as units, whole ones: ``offset``, ``size``, ``tag``."""
    whole = len(data) - len(data) % UNIT_SIZE
    return np.frombuffer(data[:whole], UNIT_DTYPE)
