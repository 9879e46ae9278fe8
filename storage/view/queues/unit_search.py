"""Where the units of a queue begin and end: one search for whoever reads queues.

Units are in the order of the log, within their files and from file to file. The file is halved for
first and then the unit within it, so what is missing between files is never looked into: a lost file
hides neither those before it nor those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE


class Unit(NamedTuple):
    """One consume queue unit."""

    commit_offset: int
    size: int
    tag_code: int

    @property
    def is_prefill(self) -> bool:
        """Whether it fills the place before a queue's first unit."""
        return self.commit_offset == 0 and self.size == PREFILL_SIZE


class Units(Protocol):
    """The units of one queue."""

    @property
    def files(self) -> Sequence[FileEntry]:
        """The queue's files in order of offset."""
        ...

    def unit(self, queue_offset: int) -> Unit | None:
        """Return one unit, None if its file is not there."""
        ...


def is_visible(unit: Unit | None, end_offset: int) -> bool:
    """Return whether a unit is there and its record ends at or before ``end_offset`` of the log."""
    if unit is None:
        return False
    return unit.is_prefill or (unit.size > 0 and 0 <= unit.commit_offset <= end_offset - unit.size)


def is_before(unit: Unit | None, commit_offset: int) -> bool:
    """Return whether a unit's record begins before ``commit_offset``; a pre-fill unit has none."""
    return unit is None or unit.is_prefill or unit.commit_offset < commit_offset


def last_visible_file(units: Units, end_offset: int) -> FileEntry | None:
    """Return the last file whose first unit is visible, None if there is none."""
    files = _holding(units.files)
    number = _halve(0, len(files), lambda at: is_visible(units.unit(_first(files[at])), end_offset))
    return files[number - 1] if number else None


def end_of_units(units: Units, end_offset: int) -> int:
    """Return the queue offset after the last visible unit; where the first file starts without any."""
    file = last_visible_file(units, end_offset)
    if file is None:
        return _first(units.files[0]) if units.files else 0
    return _halve(_first(file), _end(file), lambda at: is_visible(units.unit(at), end_offset))


def end_after(units: Units, queue_offset: int, end_offset: int) -> int:
    """Return the queue offset after the visible units from ``queue_offset`` on, of its file and the next.

    It is looked for in steps that double: a queue grows little from look to look.
    """
    while True:
        file = next(
            (file for file in units.files if _first(file) <= queue_offset < _end(file)), None
        )
        if file is None:
            return queue_offset
        low, limit, step = queue_offset, _end(file), 1
        while low < limit and is_visible(units.unit(min(low + step, limit) - 1), end_offset):
            low, step = min(low + step, limit), 2 * step
        high = min(low + step, limit)
        queue_offset = _halve(low, high, lambda at: is_visible(units.unit(at), end_offset))
        if queue_offset < limit:
            return queue_offset


def first_unit_at(units: Units, begin: int, end: int, commit_offset: int) -> int:
    """Return the first queue offset in ``[begin, end)`` whose record is at or after ``commit_offset``.

    ``end`` if there is none.
    """
    files = [file for file in _holding(units.files) if _first(file) < end and _end(file) > begin]
    number = _halve(
        0,
        len(files),
        lambda at: is_before(units.unit(min(_end(files[at]), end) - 1), commit_offset),
    )
    if number == len(files):
        return end
    low, high = max(_first(files[number]), begin), min(_end(files[number]), end)
    return _halve(low, high, lambda at: is_before(units.unit(at), commit_offset))


def mean_size(units: Units, begin: int, end: int, samples: int) -> float:
    """Estimate the size of the records of ``[begin, end)`` from units spread over it; 0 without any."""
    if begin >= end:
        return 0.0
    places = np.unique(np.linspace(begin, end - 1, min(samples, end - begin)).astype(np.int64))
    found = [units.unit(place) for place in places.tolist()]
    sizes = [unit.size for unit in found if unit and unit.size > 0 and not unit.is_prefill]
    return sum(sizes) / len(sizes) if sizes else 0.0


def _holding(files: Sequence[FileEntry]) -> list[FileEntry]:
    return [file for file in files if file.size >= UNIT_SIZE]


def _first(file: FileEntry) -> int:
    return file.start_offset // UNIT_SIZE


def _end(file: FileEntry) -> int:
    return (file.start_offset + file.size) // UNIT_SIZE


def _halve(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the first number in ``[low, high)`` for which it does not hold; ``high`` if it holds for all."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            low = middle + 1
        else:
            high = middle
    return low
