"""Consume queues compared with the log at a start, and made to agree with it.

The log is right. A unit that differs from what its record says is written again, a missing one is
added, and what points beyond the log's end goes. Only differing units are written, so repairing a
whole store writes nothing. ``view.queues.queue_order`` says where a queue begins and ends, and which units
no record says: those are rebuilt as by the running writer.

A tag code may be an address in the extension file: a unit that agrees in all else is left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_table import QueueTable
from storage.queues.rebuild import rebuild_units
from storage.view.incarnations import Incarnations
from storage.view.log.walk import ROWS_MAX, DamagedRange, RecordRun
from storage.view.queues.comparison import live_units
from storage.view.queues.queue_order import QueueOrder
from storage.view.queues.record_queues import QueueKey, runs_of
from storage.view.queues.units import UnitBuilder, Units, as_units, prefill_units, same_units

if TYPE_CHECKING:
    from storage.view.log.commit_log import ListedLog


class QueueRepair:
    """Takes the log in order; ``finish`` makes every queue end where the log says.

    ``begin_offset`` is where the log is taken from. With ``complete`` nothing that the queues hold
    from there on is believed; without it, they are right below that commit offset.
    ``topics`` says whose records get units.
    """

    def __init__(
        self,
        queues: QueueTable,
        log: ListedLog,
        *,
        begin_offset: int,
        complete: bool,
        topics: Incarnations,
    ) -> None:
        self.units_written = 0
        # Whether every record has stood where it says, and no unit has said anything else.
        self.is_plain = True
        self.forgotten_topics: set[str] = set()
        self._topics = topics
        self._queues = queues
        self._log = log
        self._begin_offset = begin_offset
        self._complete = complete
        self._orders: dict[QueueKey, QueueOrder] = {}
        self._damage: list[DamagedRange] = []
        self._builder = UnitBuilder(ROWS_MAX)

    @property
    def queue_counts(self) -> dict[str, int]:
        """How many queues each topic that has records needs."""
        counts: dict[str, int] = {}
        for (topic, queue_id), order in self._orders.items():
            if not order.is_empty:
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
        order = self._orders.get(key)
        if order is None:
            order = self._orders[key] = self._new_order(key, begins=self._complete)
        queue = self._queues.get(*key)
        begin = 0
        for run in runs_of(key, units, queue_offsets):
            count = run.end - run.begin
            skipped = order.take(run, self._damage, queue.holds)
            if skipped < count:
                of_run = units[begin + skipped : begin + count]
                self._correct(queue, order, run.begin + skipped, of_run)
            begin += count

    def _new_order(self, key: QueueKey, *, begins: bool = False) -> QueueOrder:
        """Return the order of a queue's records.

        If it ``begins`` with records that are still to come, they say where.
        """
        next_offset = None if begins else self._queues.get(*key).find_end(self._begin_offset)
        return QueueOrder(next_offset, log_begin=self._begin_offset)

    def _correct(
        self, queue: ConsumeQueue, order: QueueOrder, queue_offset: int, units: Units
    ) -> None:
        """Write units that differ; one that points to a later record stays until it is known whether that says so."""
        held = as_units(queue.read(queue_offset, len(units)))
        if held.tobytes() == units.tobytes():
            return
        same = same_units(held, units)
        later = ~same & (held["size"] > 0) & (held["offset"] > units["offset"])
        for place in np.flatnonzero(later & (held["size"] != PREFILL_SIZE)).tolist():
            order.doubt(queue_offset + place, queue_offset + place + 1)
        wrong = np.flatnonzero(~same & ~later)
        self.is_plain &= not np.any(later) and held[wrong].tobytes() == bytes(
            len(wrong) * UNIT_SIZE
        )
        if len(wrong):
            begin, end = int(wrong[0]), int(wrong[-1]) + 1
            corrected = held[begin:end].copy()
            corrected[wrong - begin] = units[wrong]
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
            if key not in self._orders:
                self._orders[key] = self._new_order(key)
        unit_count = 0
        for key in dict.fromkeys([*keys, *self._orders]):
            order, queue = self._orders.get(key), self._queues.get(*key)
            if order is not None:
                order.finish(self._damage, queue.units, sure_offset=sure_offset)
            if order is not None and not order.is_empty:
                queue.truncate(order.next_offset or 0)
                self._finish_queue(queue, order, end_offset)
            else:
                queue.truncate(queue.find_end(min(self._begin_offset, end_offset)))
            unit_count += queue.unit_count
        return unit_count

    def _finish_queue(self, queue: ConsumeQueue, order: QueueOrder, end_offset: int) -> None:
        """Rebuild what no record has said of a queue, and fill up the file that it begins in."""
        self.is_plain &= order.is_straight
        if self._complete and order.begin_offset:
            self._fill_front(queue, order.begin_offset)
        for begin, end in order.suspects():
            self.is_plain = False
            queue.make_files(begin, end)
            self.units_written += rebuild_units(
                self._log, self._queues, queue.topic, queue.queue_id, begin, end,
                commit_range=(self._log.start_offset, end_offset),
                since=max(self._topics.of(queue.topic), order.since),
            )  # fmt: skip

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

    def doubt(self, sure_offset: int) -> None:
        """Have the next sync cover units of records from ``sure_offset`` on, after ``finish``: a dead process wrote them."""
        for key in self._orders:
            queue = self._queues.get(*key)
            self._queues.doubt(key, queue.find_end(sure_offset), queue.next_offset)
