"""Units that the files of a queue hold wrongly or no more, rebuilt from the log.

A record confirms its unit if it is intact, of the queue, as long as the unit says, and has the unit's
queue offset. ``RebuiltUnits.rebuild`` is the one repair of queues: it makes the units between the nearest
confirmed ones again, or up to the ends of the queue, from the records of the log in between.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX, OFFSET_LIMIT
from storage.format.record_layout import HEAD, RECORD_SIZE_MIN
from storage.kernels import columns
from storage.kernels.columns import ByteArray, Rows, fields_at
from storage.kernels.unit_record import GOOD, place_state
from storage.view.log.commit_log import LogPart, LogView, record_runs
from storage.view.log.walk import RANGE_ROWS_MAX, RecordRun
from storage.view.queues.unit_search import NO_UNIT, Unit, UnitSource
from storage.view.queues.units import UNIT_DTYPE, UnitBuilder, Units, as_units

HEAD_BYTES: Final = 128


class Extent(NamedTuple):
    """Which units a queue has, and which part of the log their records are in."""

    begin: int
    end: int
    min_commit_offset: int
    end_commit_offset: int


class UnitRun(NamedTuple):
    """Units ``[begin, end)`` as they were made from the log; size 0 where there is no record."""

    begin: int
    end: int
    units: Units


class UnitSpan(NamedTuple):
    """Units of one file: ``array`` holds those from ``first_queue_offset`` on.

    ``begin`` is the index of the one asked for, ``end`` the index after the last that is there. Where they are
    ``rebuilt`` a record that does not confirm its unit is damaged.
    """

    array: ByteArray
    first_queue_offset: int
    begin: int
    end: int
    rebuilt: bool = False


class RebuiltUnits:
    """The rebuilt units of one queue. Safe to use from several threads.

    ``held`` are the units of its files, ``extent`` says which of them count. ``since`` gives the commit offset from
    which on the topic's records are in its queues. ``check`` is called before a rebuild; it raises QueueRebuilding
    where the writer is to rebuild the unit at a queue offset.
    """

    def __init__(
        self,
        log: LogView,
        topic: str,
        queue_id: int,
        held: UnitSource,
        extent: Callable[[], Extent],
        *,
        since: Callable[[], int] = lambda: 0,
        check: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._log = log
        self._held = held
        self._extent = extent
        self._since = since
        self._check = check
        self._name = np.frombuffer(topic.encode(), np.uint8)
        self._kernel_id = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else queue_id
        self._guard = threading.Lock()
        self._runs: list[UnitRun] = []
        self._generation = log.generation

    def agrees(self, queue_offset: int, unit: Unit) -> bool:
        """Whether an intact record agrees with the unit."""
        return _confirms(self._log, self._name, self._kernel_id, queue_offset, unit)

    def agreeing(self, queue_offset: int) -> Unit | None:
        """Return the unit that the files hold if its record agrees, or else the one that the log has."""
        unit = self._held.unit(queue_offset)
        return unit if self.agrees(queue_offset, unit) else self.unit(queue_offset)

    def place(self, queue_offset: int) -> tuple[int, int]:
        """Return commit offset and size of a record, of a lost one as its unit has them; zeros without a unit."""
        unit = self.agreeing(queue_offset) or self._held.unit(queue_offset)
        return unit.commit_offset, unit.size

    def span(self, queue_offset: int) -> UnitSpan:
        """Return units from ``queue_offset`` on; of size 0 where there is nothing for one."""
        unit = self.unit(queue_offset)
        known = self.known_span(queue_offset)
        if known is not None:
            return known
        count = 1 if unit else max(self._extent().begin - queue_offset, 1)
        units = np.array([unit or NO_UNIT] * count, UNIT_DTYPE)
        return UnitSpan(units.view(np.uint8), queue_offset, 0, count, rebuilt=True)

    def known_span(self, queue_offset: int) -> UnitSpan | None:
        """Return units from ``queue_offset`` on that were rebuilt before; None if it was not."""
        run = self.run_at(queue_offset)
        if run is None:
            return None
        array = run.units.view(np.uint8)
        return UnitSpan(
            array, run.begin, queue_offset - run.begin, run.end - run.begin, rebuilt=True
        )

    def is_right_about_damage(self, queue_offset: int, unit: Unit) -> bool:
        """Whether what is left of the record says that it is the unit's: the log is damaged, not the unit."""
        head = self._head(unit.commit_offset)
        if head is None or self._kernel_id < 0:
            return False
        begin, end = head.begin_offset - head.data_offset, head.end_offset - head.data_offset
        if end - begin < RECORD_SIZE_MIN:
            return False
        size, _, _, queue_id, _, *offsets, _, _ = HEAD.unpack_from(head.data.data, begin)
        found = size, queue_id, *offsets
        return found == (unit.size, self._kernel_id, queue_offset, unit.commit_offset)

    def _head(self, commit_offset: int) -> LogPart | None:
        if not 0 <= commit_offset < OFFSET_LIMIT:
            return None
        return self._log.part(commit_offset, commit_offset + HEAD_BYTES)

    def unit(self, queue_offset: int) -> Unit | None:
        """Return the unit that should be at a queue offset.

        It is the held one where the log's damage leaves nothing better, and None where the log has no record for
        it, or has removed it.
        """
        extent = self._extent()
        if queue_offset < extent.begin:
            return None
        with self._guard:
            self._forget_unfound()
            run = self._run_at(queue_offset)
            if run is None:
                unit = self._held.unit(queue_offset)
                if unit.size > 0 and self.is_right_about_damage(queue_offset, unit):
                    return unit
                self._check(queue_offset)
                run = self._rebuild(queue_offset, queue_offset + 1, extent)
                self._keep(run)
        unit = Unit(*run.units[queue_offset - run.begin].item())
        return unit if unit.size else None

    def run_at(self, queue_offset: int) -> UnitRun | None:
        """Return the units around a queue offset that were made before; None if it was not."""
        if not self._runs:
            return None
        if self._generation != self._log.generation:
            with self._guard:
                self._forget_unfound()
        return self._run_at(queue_offset)

    def _run_at(self, queue_offset: int) -> UnitRun | None:
        runs = self._runs  # replaced as one
        number = bisect_right(runs, queue_offset, key=attrgetter("begin")) - 1
        return runs[number] if number >= 0 and queue_offset < runs[number].end else None

    def _forget_unfound(self) -> None:
        """Look again for what was not found, when there are other files of the log."""
        generation = self._log.generation
        if generation != self._generation:
            self._runs = [run for run in self._runs if np.all(run.units["size"])]
            self._generation = generation

    def _keep(self, run: UnitRun) -> None:
        """Keep a run; those inside it are of the same records."""
        others = [each for each in self._runs if each.end <= run.begin or each.begin >= run.end]
        self._runs = sorted([*others, run], key=attrgetter("begin"))

    def rebuild(self, begin: int, end: int) -> UnitRun:
        """Make units ``[begin, end)`` again, and those up to the nearest that are right.

        The log is read between the records of those two.
        """
        return self._rebuild(begin, end, self._extent())

    def _rebuild(self, begin: int, end: int, extent: Extent) -> UnitRun:
        held = self._held
        before = self._nearest(begin, extent, -1)
        after = self._nearest(end - 1, extent, 1)
        begin, low = extent.begin, max(extent.min_commit_offset, self._since())
        if before is not None:
            unit = held.unit(before)
            begin, low = before + 1, unit.commit_offset + unit.size
        end, high = extent.end, extent.end_commit_offset
        if after is not None:
            unit = held.unit(after)
            end, high = after, unit.commit_offset
        made = self._scan(low, high, begin, end - begin)
        front = 0
        if (
            before is None and extent.min_commit_offset > 0
        ):  # deleted records had the units in front
            found = np.flatnonzero(made["size"])
            front = int(found[0]) if len(found) else len(made)
        self._fill(made, begin, (low, high), extent, front)
        return UnitRun(begin, end, made)

    def _nearest(self, queue_offset: int, extent: Extent, direction: int) -> int | None:
        """Return a queue offset before or after one whose record agrees, looking in steps that double."""
        limit = extent.begin if direction < 0 else extent.end - 1
        at, step = queue_offset, 1
        while at != limit:
            at = max(at - step, limit) if direction < 0 else min(at + step, limit)
            step *= 2
            if self._run_at(at) is None and self.agrees(at, self._held.unit(at)):
                return at
        return None

    def _fill(
        self,
        made: Units,
        begin: int,
        commit_range: tuple[int, int],
        extent: Extent,
        front: int,
    ) -> None:
        """Fill in units for which there is no record: the held ones that point between those made.

        Their records are damaged, which a pull says of each; or the queue offset in them is, which no
        checksum of a broker's covers. Other held units from ``front`` on become ones that point at the gap.
        """
        missing = np.flatnonzero(made["size"] == 0)
        if not len(missing):
            return
        found = np.flatnonzero(made["size"])
        following = np.searchsorted(found, missing)
        offsets = made["offset"][found].astype(np.int64)
        floors = np.concatenate(([commit_range[0]], offsets + made["size"][found]))[following]
        limits = np.concatenate((offsets, [commit_range[1]]))[following]
        units = self._held.units(begin, len(made))[missing]
        sizes, places = units["size"].astype(np.int64), units["offset"].astype(np.int64)
        is_kept = (sizes > 0) & (places >= floors) & (places <= limits - sizes)
        made[missing[is_kept]] = units[is_kept]
        # What points to a part of the log that is not there, or not yet, is left out, as is pre-fill.
        others = (sizes <= 0) | (places < limits) | (limits != extent.end_commit_offset)
        others &= ~is_kept & (sizes != PREFILL_SIZE) & (missing >= front)
        others &= _are_in_files(self._held, begin + missing)
        for gap in np.unique(following[others]).tolist():
            mine = others & (following == gap)
            first = int(np.argmax(mine))
            floor, limit = int(floors[first]), int(limits[first])
            if any(self._log.parts(floor, limit)):
                made[missing[mine]] = (floor, min(limit - floor, PREFILL_SIZE - 1), 0)

    def _scan(self, low: int, high: int, begin: int, count: int) -> Units:
        """Return units ``[begin, begin + count)`` of the records of the queue in ``[low, high)``.

        Of records that say the same queue offset, the one whose unit is held counts, or else the last.
        """
        made = np.zeros(count, UNIT_DTYPE)
        kept: npt.NDArray[np.int64] | None = None
        for units, queue_offsets in queue_units(self._log, self.topic, self.queue_id, low, high):
            mine = (queue_offsets >= begin) & (queue_offsets < begin + count)
            places, found = queue_offsets[mine] - begin, units[mine]
            if made["size"][places].any() or np.any(places[1:] <= places[:-1]):
                if kept is None:
                    kept = self._held.units(begin, count)["offset"].astype(np.int64)
                stays = (made["size"][places] > 0) & (made["offset"][places] == kept[places])
                places, found = places[~stays], found[~stays]
                last = np.argsort(found["offset"] == kept[places], kind="stable")
                places, found = places[last], found[last]
            made[places] = found
        return made


def is_confirmed(log: LogView, topic: str, queue_id: int, queue_offset: int, unit: Unit) -> bool:
    """Whether an intact record confirms a unit of a queue that is not light."""
    name = np.frombuffer(topic.encode(), np.uint8)
    return _confirms(log, name, queue_id, queue_offset, unit)


def _confirms(log: LogView, name: ByteArray, kernel_id: int, queue_offset: int, unit: Unit) -> bool:
    at, size = unit.commit_offset, unit.size
    part = log.part(at, at + size) if at >= 0 and 0 < size < PREFILL_SIZE else None
    if part is None:
        return False
    state = place_state(
        part.data, part.begin_offset - part.data_offset, part.end_offset - part.data_offset,
        at, size, name, kernel_id, queue_offset,
    )  # fmt: skip
    return bool(state == GOOD)


def queue_units(
    log: LogView, topic: str, queue_id: int, begin_offset: int, end_offset: int
) -> Iterator[tuple[Units, npt.NDArray[np.int64]]]:
    """Yield the units of one queue for the intact records of a range, with the queue offsets they say.

    The range begins where a record or a file does. The arrays are good until the next ones.
    """
    builder = UnitBuilder(RANGE_ROWS_MAX)
    for run in record_runs(log, begin_offset, end_offset):
        rows = _rows_of(run, topic, queue_id)
        for built in builder.build(run.data, rows, len(rows), run.data_offset):
            if (built.topic, built.queue_id) == (topic, queue_id):
                yield as_units(built.units), built.queue_offsets


def _rows_of(run: RecordRun, topic: str, queue_id: int) -> Rows:
    """Return the rows of the records that can have a unit in a queue, light or not."""
    rows = run.rows
    if topic.startswith(LIGHT_QUEUE_PREFIX):
        light: Rows = rows[rows[:, columns.FEATURES] & columns.HAS_MULTI_DISPATCH != 0]
        return light
    name = topic.encode()
    like = np.flatnonzero(
        (rows[:, columns.QUEUE_ID] == queue_id) & (rows[:, columns.TOPIC_LENGTH] == len(name))
    )
    names = fields_at(run.data, rows[like, columns.TOPIC_POSITION], f"S{len(name)}")
    found = like[names == name]
    return rows if 2 * len(found) > len(rows) else rows[found]


def _are_in_files(held: UnitSource, queue_offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which units, by ascending queue offset, have a file."""
    there = np.zeros(len(queue_offsets), np.bool_)
    for file in held.files:
        borders = file.start_offset // UNIT_SIZE, file.end_offset // UNIT_SIZE
        begin, end = np.searchsorted(queue_offsets, borders).tolist()
        there[begin:end] = True
    return there
