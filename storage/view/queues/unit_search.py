"""The units of a queue, and where they begin and end: one search for whoever reads queues, or writes them.

Units are in the order of the log, within their files and from file to file. Files are looked at one by
one and then units within one, so what is missing between files is never looked into: a lost file hides
neither those before it nor those after it. Nor does a wrong unit: only units in order with those beside
them count (``storage.kernels.unit_order``), and an end is one where none of the next ones does.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from storage.files.filesystem import ByteArray
from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import LAYOUT, PREFILL_SIZE, UNIT_SIZE
from storage.kernels.unit_order import LOOK_AHEAD, first_in_order, last_in_order, visible_end
from storage.view.queues.units import UNIT_DTYPE, Units, as_units

OUTLIER: Final = 1_000  # times the median
NOWHERE: Final = (1 << 63) - 1  # after all queue offsets


class Unit(NamedTuple):
    """One consume queue unit."""

    commit_offset: int
    size: int
    tag_code: int

    @property
    def is_prefill(self) -> bool:
        """Whether it fills the place before a queue's first unit."""
        return self.commit_offset == 0 and self.size == PREFILL_SIZE


NO_UNIT: Final = Unit(0, 0, 0)


class UnitSource(ABC):
    """The units of one queue, as its files hold them; a subclass says how these are reached."""

    @property
    @abstractmethod
    def files(self) -> Sequence[FileEntry]:
        """The queue's files in order of offset."""

    @abstractmethod
    def window(self, begin: int, end: int) -> tuple[ByteArray, int]:
        """Return units of one file, those of ``[begin, end)`` and some beside them as far as it has them.

        The number is the queue offset of the first.
        """

    def unit(self, queue_offset: int) -> Unit:
        """Return one unit; zeros where there is none."""
        array, first = self.window(queue_offset, queue_offset + 1)
        is_there = 0 <= queue_offset < first + len(array) // UNIT_SIZE
        return unit_at(array, queue_offset - first) if is_there else NO_UNIT

    def units(self, first: int, count: int) -> Units:
        """Return ``count`` units from ``first`` on; zeros where there are none."""
        held = np.zeros(count, UNIT_DTYPE)
        for file in self.files:
            begin, end = max(first, _first(file)), min(first + count, _end(file))
            if begin < end:
                array, at = self.window(begin, end)
                found = as_units(array)[begin - at : end - at]
                held[begin - first : begin - first + len(found)] = found
        return held

    def holds(self, queue_offset: int, commit_offset: int) -> bool:
        """Whether the unit there points to a commit offset; a hole is no unit of record 0."""
        unit = self.unit(queue_offset)
        return unit.size > 0 and unit.commit_offset == commit_offset

    def next_there(self, queue_offset: int) -> int:
        """Return the first queue offset from this one on whose file is there; NOWHERE if none is."""
        for file in self.files:
            if _end(file) > queue_offset:
                return max(_first(file), queue_offset)
        return NOWHERE


def unit_at(array: ByteArray, index: int) -> Unit:
    """Return one unit of an array of them."""
    return Unit(*LAYOUT.unpack_from(array.data, index * UNIT_SIZE))


def is_before(unit: Unit, commit_offset: int) -> bool:
    """Return whether a unit's record begins before ``commit_offset``; a pre-fill unit has none."""
    return unit.is_prefill or unit.commit_offset < commit_offset


def end_of_units(
    units: UnitSource, end_offset: int, files: Sequence[FileEntry] | None = None
) -> int:
    """Return the queue offset after the last visible unit; where the first file starts without any.

    A unit is visible if its record ends at or before ``end_offset`` of the log. ``files`` are those of the
    queue, where it is known how much of them has data.
    """
    files = units.files if files is None else files
    for file in reversed(_holding(files)):
        low, high = _first(file), _end(file)
        while low < high:
            middle = (low + high) // 2 if high - low > LOOK_AHEAD else low
            found = _visible_end(units, middle, min(middle + LOOK_AHEAD, high), end_offset)
            if found > middle:
                low = found
            else:
                high = middle
        if low > _first(file):
            return low
    return _first(files[0]) if files else 0


def end_after(units: UnitSource, queue_offset: int, end_offset: int) -> int:
    """Return the queue offset after the visible units from ``queue_offset`` on, of its file and the next.

    They are looked at in steps that double: a queue grows little from look to look. The end is where none of the
    next ``LOOK_AHEAD`` units is visible.
    """
    while True:
        file = next(
            (file for file in units.files if _first(file) <= queue_offset < _end(file)), None
        )
        if file is None:
            return queue_offset
        limit, step = _end(file), 2 * LOOK_AHEAD
        while queue_offset < limit:
            until = min(queue_offset + step, limit)
            found = _visible_end(units, queue_offset, until, end_offset)
            if found == queue_offset or found + LOOK_AHEAD < until:
                return found
            queue_offset, step = found, 2 * step


def first_unit_at(units: UnitSource, begin: int, end: int, commit_offset: int) -> int:
    """Return the first queue offset in ``[begin, end)`` whose record is at or after ``commit_offset``.

    ``end`` if there is none. Of wrong units between one that is before and one that is not, the
    first is returned.
    """
    files = [file for file in _holding(units.files) if _first(file) < end and _end(file) > begin]

    def is_over(number: int) -> bool:
        last = _last_in_order(units, _first(files[number]), min(_end(files[number]), end))
        return last is not None and is_before(last.unit, commit_offset)

    number = _halve(0, len(files), is_over)
    if number == len(files):
        return end
    low, high = max(_first(files[number]), begin), min(_end(files[number]), end)
    while low < high:
        middle = (low + high) // 2
        at = _first_in_order(units, middle, high)
        if at is not None and is_before(at.unit, commit_offset):
            low = at.queue_offset + 1
            continue
        if at is not None and at.queue_offset == middle:
            high = middle
            continue
        before = _last_in_order(units, low, middle)  # what lies in between says nothing
        if before is None:
            return low
        if is_before(before.unit, commit_offset):
            return before.queue_offset + 1
        high = before.queue_offset
    return low


def mean_size(unit_of: Callable[[int], Unit], begin: int, end: int, samples: int) -> float:
    """Estimate the size of the records of ``[begin, end)`` from units spread over it; 0 without any.

    A size that is far above the others is not believed.
    """
    if begin >= end:
        return 0.0
    places = np.unique(np.linspace(begin, end - 1, min(samples, end - begin)).astype(np.int64))
    found = [unit_of(place) for place in places.tolist()]
    sizes = [unit.size for unit in found if unit.size > 0 and not unit.is_prefill]
    if not sizes:
        return 0.0
    most = sorted(sizes)[len(sizes) // 2] * OUTLIER
    believed = [size for size in sizes if size <= most]
    return sum(believed) / len(believed)


class _Found(NamedTuple):
    queue_offset: int
    unit: Unit


def _visible_end(units: UnitSource, begin: int, end: int, end_offset: int) -> int:
    array, first = units.window(begin, end)
    end = min(end, first + len(array) // UNIT_SIZE)
    return max(int(visible_end(array, begin - first, end - first, end_offset)) + first, begin)


def _first_in_order(units: UnitSource, begin: int, end: int) -> _Found | None:
    step = LOOK_AHEAD
    while begin < end:
        until = min(begin + step, end)
        array, first = units.window(begin, until)
        until = min(until, first + len(array) // UNIT_SIZE)
        found = int(first_in_order(array, begin - first, until - first)) + first
        if found < until:
            return _Found(found, unit_at(array, found - first))
        begin, step = begin + step, 2 * step
    return None


def _last_in_order(units: UnitSource, begin: int, end: int) -> _Found | None:
    step = LOOK_AHEAD
    while begin < end:
        low = max(begin, end - step)
        array, first = units.window(low, end)
        until = min(end, first + len(array) // UNIT_SIZE)
        found = int(last_in_order(array, low - first, until - first)) + first
        if found >= low:
            return _Found(found, unit_at(array, found - first))
        end, step = low, 2 * step
    return None


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
