"""Consume queues compared with the log, and made to agree with it.

The log is right. A unit that differs from what its record says is written again, a missing one is
added, and what points beyond the log's end goes. Only differing units are written, so repairing a
whole store writes nothing. Which queue offset each record belongs to is decided in ``view.queues.placing``.

A tag code may be an address in the extension file: a unit that agrees in all else is left alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_table import QueueTable
from storage.view.live_topics import LiveTopics
from storage.view.log.walk import ROWS_MAX, DamagedRange, RecordRun
from storage.view.queues.comparison import live_units
from storage.view.queues.placing import (
    NOT_PLACED,
    Begins,
    Gap,
    HeldUnits,
    Placed,
    QueuePlacer,
    Step,
    settle_ends,
)
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import runs_of
from storage.view.queues.unit_search import Unit
from storage.view.queues.units import (
    UnitBuilder,
    Units,
    as_units,
    gap_units,
    prefill_units,
    same_units,
)


class QueueRepair:
    """Takes the log in order; ``finish`` makes every queue end where the log says.

    ``begin_offset`` is where the log is taken from. With ``complete`` nothing that the queues hold
    from there on is believed; without it, they are right below that commit offset.
    ``topics`` says whose records get units.
    """

    def __init__(
        self,
        queues: QueueTable,
        *,
        begin_offset: int,
        complete: bool,
        topics: LiveTopics,
    ) -> None:
        self.units_written = 0
        # Whether every record has stood where it says, and no unit has said anything else.
        self.is_plain = True
        self.forgotten_topics: set[str] = set()
        self._topics = topics
        self._queues = queues
        self._begin_offset = begin_offset
        self._complete = complete
        self._held = HeldUnits(queues.held)
        self._placers: dict[QueueKey, QueuePlacer] = {}
        self._waiting: dict[QueueKey, deque[Units]] = {}  # of runs that are not placed yet
        self._damage: list[DamagedRange] = []
        self._builder = UnitBuilder(ROWS_MAX)

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each topic that has records needs."""
        counts: dict[str, int] = {}
        for (topic, queue_id), placer in self._placers.items():
            if not placer.is_empty:
                counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    def take_damage(self, damage: DamagedRange) -> None:
        """Note a range without intact records; called in the log's order."""
        self._damage.append(damage)
        self.is_plain = False

    def take(self, records: RecordRun) -> None:
        """Compare and correct the units of a run of records."""
        for key, units, queue_offsets in live_units(
            self._builder, records, self._topics, self.forgotten_topics
        ):
            self._take_of_queue(key, units, queue_offsets)

    def _take_of_queue(
        self, key: QueueKey, units: Units, queue_offsets: npt.NDArray[np.int64]
    ) -> None:
        placer = self._placers.get(key)
        if placer is None:
            placer = self._placers[key] = self._new_placer(key, begins=self._complete)
        waiting = self._waiting.pop(key, None) or deque()
        begin = 0
        for run in runs_of(key, units, queue_offsets):
            end = begin + run.end - run.begin
            placer.take(run)
            waiting.append(units[begin:end])
            begin = end
        self._carry_out(key, placer.settle(), waiting)
        if waiting:
            self._waiting[key] = deque(each.copy() for each in waiting)  # buffers are used again

    def _new_placer(self, key: QueueKey, *, begins: bool = False) -> QueuePlacer:
        """Return who places the records of a queue.

        If it ``begins`` with records that are still to come, they say where.
        """
        next_offset = None if begins else self._queues.get(*key).find_end(self._begin_offset)
        return QueuePlacer(
            key,
            self._held,
            self._damage,
            next_offset=next_offset,
            log_begin=self._begin_offset,
        )

    def _carry_out(self, key: QueueKey, steps: Iterable[Step], waiting: deque[Units]) -> None:
        """Do what a placer has decided; ``waiting`` are the units of the runs that it has."""
        queue = self._queues.get(*key)
        for step in steps:
            if isinstance(step, Placed):
                count = step.run.end - step.run.begin
                units = waiting.popleft()
                if len(units) > count:
                    waiting.appendleft(units[count:])
                if step.place != NOT_PLACED:
                    self._correct(queue, step.place, units[:count])
                self.is_plain &= step.place == step.run.begin
                continue
            self.is_plain = False
            if isinstance(step, Gap):
                held = as_units(queue.read(step.begin, step.end - step.begin))
                self._correct(queue, step.begin, gap_units(held, step.ranges))
            elif isinstance(step, Begins) and step.queue_offset:
                queue.prefill(step.queue_offset)
                self._fill_front(queue, step.queue_offset)

    def _fill_front(self, queue: ConsumeQueue, next_offset: int) -> None:
        """Make pre-fill units of what the file before the first record holds in error."""
        begin = next_offset - next_offset % queue.units_per_file
        held = as_units(queue.read(begin, next_offset - begin))
        wrong = (held["size"] <= 0) | (held["offset"] < 0) | (held["offset"] >= self._begin_offset)
        wrong &= held["size"] != PREFILL_SIZE
        if np.any(wrong):
            filled = held.copy()
            filled[wrong] = prefill_units(1)
            queue.write(begin, filled.tobytes())
            self.units_written += int(np.count_nonzero(wrong))

    def _correct(self, queue: ConsumeQueue, queue_offset: int, units: Units) -> None:
        count = len(units)
        held = as_units(queue.read(queue_offset, count))
        key, last = (queue.topic, queue.queue_id), queue_offset + count - 1
        for at in (0, last) if queue_offset == 0 else (last,):
            self._held.remember(key, at, Unit(*held[at - queue_offset].tolist()))
        if held.tobytes() == units.tobytes():
            return
        same = same_units(held, units)
        wrong = np.flatnonzero(~same)
        if not len(wrong):
            return
        self.is_plain &= held[wrong].tobytes() == bytes(len(wrong) * UNIT_SIZE)
        begin, end = int(wrong[0]), int(wrong[-1]) + 1
        corrected = held[begin:end].copy()
        corrected[~same[begin:end]] = units[begin:end][~same[begin:end]]
        queue.write(queue_offset + begin, corrected.tobytes())
        self.units_written += len(wrong)

    def finish(self, end_offset: int, *, sure_offset: int | None = None) -> int:
        """End every queue after its last unit of a record below ``end_offset``.

        Queues that the log does not mention keep what points before the taken part, so that their
        offsets go on where they were. So they do after units of damaged records, as far as those were
        durable: below ``sure_offset``, or all if that is not known. Returns how many units all queues then hold.
        """
        keys = list(self._queues.on_disk())
        for key in keys if self._damage else ():
            if key not in self._placers:
                self._placers[key] = self._new_placer(key)
        for key, step in settle_ends(self._placers, sure_offset=sure_offset):
            self._carry_out(key, [step], self._waiting.setdefault(key, deque()))
        unit_count = 0
        for key in dict.fromkeys([*keys, *self._placers]):
            placer = self._placers.get(key)
            queue = self._queues.get(*key)
            if placer is not None and not placer.is_empty:
                next_offset = placer.next_offset
            else:
                next_offset = queue.find_end(min(self._begin_offset, end_offset))
            queue.truncate(next_offset)
            unit_count += queue.unit_count
        return unit_count

    def doubt(self, sure_offset: int) -> None:
        """Have the next sync write units of records from ``sure_offset`` on once more, after ``finish``.

        What a failed sync left of them may be in the page cache alone, and count as written; and
        who made their files may have been killed before the names were durable.
        """
        for key in self._placers:
            queue = self._queues.get(*key)
            self._queues.doubt(key, queue.find_end(sure_offset), queue.next_offset)
