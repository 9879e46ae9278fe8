"""Consume queues compared with the log, and made to agree with it.

The log is right. A unit that differs from what its record says is written again, a missing one is
added, and what points beyond the log's end goes. Only differing units are written, so repairing a
whole store writes nothing.

Four things a log alone does not say, and how each is decided:

* A record's queue offset is ahead of its queue. If a damaged range lies between, the missing offsets
  belonged to damaged records: their units stay where they point into the range, and otherwise become
  placeholders that point at it, so that a pull reports the damage at that offset alone. They are
  filled so, too, where no range is damaged but the offset is sure, because its unit stands there or
  the next record goes on from it: what is missing has the name of another queue now. Otherwise the
  offset itself is wrong (no checksum of a broker's covers it), and the record takes its place in
  the order of the log, as its unit did before.
* A record claims a place that another one has, by its word and the unit that stood there, and its own
  unit stands in another queue: a bit of its name flipped, and it gets no unit here.
* A queue begins again at 0, or after damaged records that have room for what is missing: its topic
  was deleted and made again; the earlier records left the queue.
* A tag code may be an address in the extension file: a unit that agrees in all else is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.queues.consume_queue import ConsumeQueue, placeholder_units
from storage.queues.misplaced_records import MisplacedRecords
from storage.queues.queue_table import QueueTable
from storage.tables.topics import QUEUE_COUNT_MAX
from storage.view.log.walk import ROWS_MAX, DamagedRange, LogFiles, RecordRun
from storage.view.queues.units import UnitBuilder, Units, as_units, same_units

OFFSET_LIMIT: Final = 1 << 58  # times the size of a unit, it is still a position
NOTHING_DELETED: Final[Mapping[str, int]] = MappingProxyType({})


class RepairWatch(Protocol):
    """Is shown what a repair comes to and what it changes, before it does."""

    def walked(self, commit_offset: int) -> None:
        """The log has been taken up to a commit offset."""
        ...

    def corrected(
        self, queue: ConsumeQueue, queue_offset: int, held: Units, wanted: Units,
        wrong: npt.NDArray[np.int64],
    ) -> None:  # fmt: skip
        """Of the units ``held`` from a queue offset on, those at the places ``wrong`` become ``wanted``."""
        ...

    def ended(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """What the queue holds from a queue offset on goes."""
        ...


@dataclass(slots=True)
class _State:
    queue: ConsumeQueue
    next_offset: int
    damage: list[DamagedRange] = field(default_factory=list)  # since the queue's last record
    last_commit_offset: int = -1  # of the queue's last record
    last_claim: int = -1  # the queue offset which that record has in it


class QueueRepair:
    """Takes the log in order; ``finish`` makes every queue end where the log says.

    ``begin_offset`` is where the log is taken from. With ``complete`` nothing that the queues hold
    from there on is believed; without it, they are right below that commit offset.
    ``log`` is where it can be looked up, ``watch`` is shown what changes. ``deleted_topics`` is from which commit offset on a
    topic's records count again. Records of topics that are not among ``known_topics``, if given, get
    no units; light queues do.
    """

    def __init__(
        self,
        queues: QueueTable,
        *,
        begin_offset: int,
        complete: bool,
        log: LogFiles,
        deleted_topics: Mapping[str, int] = NOTHING_DELETED,
        known_topics: frozenset[str] | None = None,
        watch: RepairWatch | None = None,
    ) -> None:
        self.units_written = 0
        self._watch = watch
        self.forgotten_topics: set[str] = set()
        self._known_topics = known_topics
        self._misplaced = MisplacedRecords(log, queues)
        self._queues = queues
        self._begin_offset = begin_offset
        self._complete = complete
        self._deleted_topics = deleted_topics
        self._states: dict[tuple[str, int], _State] = {}
        self._damage: list[DamagedRange] = []
        self._builder = UnitBuilder(ROWS_MAX)

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each topic that was met needs; ids that no queue has do not count."""
        counts: dict[str, int] = {}
        for topic, queue_id in self._states:
            needed = queue_id + 1 if 0 <= queue_id < QUEUE_COUNT_MAX else 0
            counts[topic] = max(counts.get(topic, 0), needed)
        return counts

    def take_damage(self, damage: DamagedRange) -> None:
        """Note a range without intact records; called in the log's order."""
        self._damage.append(damage)
        for state in self._states.values():
            state.damage.append(damage)

    def take(self, records: RecordRun) -> None:
        """Compare and correct the units of a run of records."""
        for topic, queue_id, units, queue_offsets in self._builder.build(
            records.data, records.rows, len(records.rows), records.data_offset
        ):
            alive = as_units(units)
            if self._is_forgotten(topic):
                self.forgotten_topics.add(topic)
                continue
            if topic in self._deleted_topics:
                kept = alive["offset"] >= self._deleted_topics[topic]
                alive, queue_offsets = alive[kept], queue_offsets[kept]
                if not len(alive):
                    continue
            state = self._states.get((topic, queue_id))
            if state is None:
                state = self._states[topic, queue_id] = self._first_met(
                    topic, queue_id, alive, queue_offsets
                )
            self._place(state, alive, queue_offsets)
            state.damage.clear()
        if self._watch is not None:
            self._watch.walked(records.end_offset)

    def _is_forgotten(self, topic: str) -> bool:
        return (
            self._known_topics is not None
            and topic not in self._known_topics
            and not topic.startswith(LIGHT_QUEUE_PREFIX)
        )

    def _first_met(
        self, topic: str, queue_id: int, units: Units, queue_offsets: npt.NDArray[np.int64]
    ) -> _State:
        queue = self._queues.get(topic, queue_id)
        if not self._complete:
            return _State(queue, queue.find_end(self._begin_offset), list(self._damage))
        next_offset = max(int(queue_offsets[0]), 0)
        if len(units) == 1 or queue_offsets[1] != next_offset + 1:
            # One record's word alone: where its unit stands already counts for more, and so does
            # what the two records after it agree on.
            held = self._offset_of(queue, int(units[0]["offset"]), next_offset)
            if held is not None:
                next_offset = held
            elif len(units) > 2 and 0 < queue_offsets[1] == queue_offsets[2] - 1:
                next_offset = int(queue_offsets[1]) - 1
        if self._damage and self._begin_offset == 0:
            next_offset = 0  # what came before was damaged, not cleaned away
        queue.prefill(next_offset)
        self._fill_front(queue, next_offset)
        return _State(queue, next_offset, list(self._damage))

    def _fill_front(self, queue: ConsumeQueue, next_offset: int) -> None:
        """Make pre-fill units of what the file before the first record holds in error."""
        begin = next_offset - next_offset % queue.units_per_file
        held = as_units(queue.read(begin, next_offset - begin))
        wrong = (held["size"] <= 0) | (held["offset"] < 0) | (held["offset"] >= self._begin_offset)
        wrong &= held["size"] != PREFILL_SIZE
        if np.any(wrong):
            filled = held.copy()
            filled[wrong] = np.array((0, PREFILL_SIZE, 0), filled.dtype)
            if self._watch is not None:
                self._watch.corrected(queue, begin, held, filled, np.flatnonzero(wrong))
            queue.write(begin, filled.tobytes())
            self.units_written += int(np.count_nonzero(wrong))

    @staticmethod
    def _offset_of(queue: ConsumeQueue, commit_offset: int, likely: int) -> int | None:
        """Return the queue offset at which the files already hold a record's unit."""
        if _holds(queue, likely, commit_offset):
            return likely
        for start in queue.file_starts:
            first = start // UNIT_SIZE
            units = as_units(queue.read(first, queue.units_per_file))
            found = np.flatnonzero((units["offset"] == commit_offset) & (units["size"] > 0))
            if len(found):
                return first + int(found[0])
        return None

    def _place(self, state: _State, units: Units, queue_offsets: npt.NDArray[np.int64]) -> None:
        breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        if len(breaks) or queue_offsets[0] != state.next_offset:
            own = self._own(state.queue, units, queue_offsets)
            units, queue_offsets = units[own], queue_offsets[own]
            if not len(units):
                return
            breaks = np.flatnonzero(np.diff(queue_offsets) != 1) + 1
        for begin, end in zip([0, *breaks], [*breaks, len(units)], strict=True):
            run = units[begin:end]
            first = int(queue_offsets[begin])
            if first > state.next_offset:
                self._fill_gap(state, first, run)
                if (
                    first > state.next_offset
                    and len(run) == 1
                    and self._misplaced.contains(
                        state.queue, state.next_offset, int(run["offset"][0])
                    )
                ):
                    continue
            elif first == 0 < state.next_offset and self._begins_again(state.queue, run):
                state.next_offset = 0
            elif first == 1 < state.next_offset and state.last_claim == 0 and len(run) > 1:
                # The record before said 0, and was not believed alone.
                self._correct(state.queue, 0, as_units(state.queue.read(state.next_offset - 1, 1)))
                state.next_offset = 1
            elif first < state.next_offset and self._began_in_damage(state, first, run):
                placeholders = placeholder_units(_range_of(state.damage[-1]), first)
                self._correct(state.queue, 0, as_units(placeholders))
                state.next_offset = first
            self._correct(state.queue, state.next_offset, run)
            state.next_offset += len(run)
            state.last_commit_offset = int(run["offset"][-1])
            state.last_claim = int(queue_offsets[end - 1])

    def _own(
        self, queue: ConsumeQueue, units: Units, queue_offsets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Which records belong at the queue offsets that they claim."""
        own = np.ones(len(units), np.bool_)
        for index in np.flatnonzero((queue_offsets >= 0) & (queue_offsets < OFFSET_LIMIT)):
            commit_offset = int(units["offset"][index])
            if not _holds(queue, int(queue_offsets[index]), commit_offset):
                own[index] = not self._misplaced.contains(
                    queue, int(queue_offsets[index]), commit_offset
                )
        return own

    @staticmethod
    def _begins_again(queue: ConsumeQueue, run: Units) -> bool:
        return len(run) > 1 or _holds(queue, 0, int(run[0]["offset"]))

    @staticmethod
    def _began_in_damage(state: _State, first: int, run: Units) -> bool:
        """Whether a queue that goes back to ``first`` began again with damaged records."""
        room = sum(damage.end_offset - damage.begin_offset for damage in state.damage)
        return len(run) > 1 and 0 < first * RECORD_SIZE_MIN <= room

    def _fill_gap(self, state: _State, first: int, run: Units) -> None:
        missing = first - state.next_offset
        ranges = [_range_of(damage) for damage in state.damage]
        if missing * RECORD_SIZE_MIN > sum(end - begin for begin, end in ranges):
            ranges = [(state.last_commit_offset + RECORD_SIZE_MIN, int(run["offset"][0]))]
            if missing * RECORD_SIZE_MIN > ranges[0][1] - ranges[0][0]:
                return
            if not self._is_sure(state, first, run):
                return
        held = as_units(state.queue.read(state.next_offset, missing)).copy()
        inside = np.zeros(missing, np.bool_)
        for begin, end in ranges:
            inside |= (held["offset"] >= begin) & (held["offset"] < end)
        inside &= held["size"] > 0
        held[~inside] = as_units(placeholder_units(ranges[-1], 1))
        self._correct(state.queue, state.next_offset, held)
        state.next_offset = first

    @staticmethod
    def _is_sure(state: _State, first: int, run: Units) -> bool:
        commit_offset = int(run["offset"][0])
        if _holds(state.queue, first, commit_offset):
            return True
        return len(run) > 1 and not _holds(state.queue, state.next_offset, commit_offset)

    def _correct(self, queue: ConsumeQueue, queue_offset: int, units: Units) -> None:
        held = as_units(queue.read(queue_offset, len(units)))
        same = same_units(held, units)
        wrong = np.flatnonzero(~same)
        if not len(wrong):
            return
        if self._watch is not None:
            self._watch.corrected(queue, queue_offset, held, units, wrong)
        begin, end = int(wrong[0]), int(wrong[-1]) + 1
        corrected = held[begin:end].copy()
        corrected[~same[begin:end]] = units[begin:end][~same[begin:end]]
        queue.write(queue_offset + begin, corrected.tobytes())
        self.units_written += len(wrong)

    def finish(self, end_offset: int) -> int:
        """End every queue after its last unit of a record below ``end_offset``.

        Queues that the log does not mention keep what points before the taken part, so that their
        offsets go on where they were. Returns how many units all queues then hold.
        """
        unit_count = 0
        for topic, queue_id in list(self._queues.on_disk()):
            state = self._states.get((topic, queue_id))
            queue = self._queues.get(topic, queue_id)
            if state is not None:
                next_offset = state.next_offset
            else:
                next_offset = queue.find_end(min(self._begin_offset, end_offset))
            if self._watch is not None:
                self._watch.ended(queue, next_offset)
            queue.truncate(next_offset)
            unit_count += queue.unit_count
        return unit_count

    def rewrite(self, sure_offset: int) -> None:
        """Write units of records from ``sure_offset`` on once more, after ``finish``.

        What a failed sync left of them may be in the page cache alone, and count as written; and
        who made their files may have been killed before the names were durable.
        """
        for state in self._states.values():
            queue = state.queue
            begin = queue.find_end(sure_offset)
            if begin < queue.next_offset:
                queue.write(begin, queue.read(begin, queue.next_offset - begin))
                queue.distrust_names()


def _holds(queue: ConsumeQueue, queue_offset: int, commit_offset: int) -> bool:
    """Whether the files hold a record's unit at a queue offset; a hole is no unit of record 0."""
    unit = queue.unit(queue_offset)
    return unit[1] > 0 and unit[0] == commit_offset


def _range_of(damage: DamagedRange) -> tuple[int, int]:
    return damage.begin_offset, damage.end_offset
