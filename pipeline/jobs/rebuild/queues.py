"""Consume queues from the log: units written where records say, then what no record says is rebuilt.

A record says its queue offset, so each task writes the units of its pieces straight to their places. Then
the driver lays out every queue by the rule of a start (``storage.view.queues.queue_order``), and tasks
rebuild the units that this rule doubts, as a running writer does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.stopped.files import remove_files, write_queue
from storage.view.incarnations import Incarnations
from storage.view.log.walk import DamagedRange
from storage.view.queues.comparison import Longs
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.queue_order import QUEUE_OFFSET_LIMIT, QueueOrder
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.record_queues import QueueKey, QueueRun, consecutive
from storage.view.queues.unit_search import end_of_units
from storage.view.queues.units import Units, as_units, prefill_units
from storage.view.store_view import StoreView


class QueuePlan(NamedTuple):
    """How one queue is laid out; units of ``gaps`` are rebuilt, of all of it where it is not ``is_straight``."""

    key: QueueKey
    begin: int
    end: int
    since: int
    is_straight: bool
    gaps: tuple[tuple[int, int], ...]
    moved_count: int  # of records that do not stand where they say

    @property
    def unit_count(self) -> int:
        """How many units records have said."""
        return self.end - self.begin - sum(end - begin for begin, end in self.gaps)


@dataclass(frozen=True)
class QueueOutput:
    """Where the queues of ``store`` are made, nowhere without ``directory``, and what is left out.

    ``commit_range`` is the part of its log that is in them; ``with_keys``: keys are counted for its index.
    """

    store: StoreView
    directory: Path | None
    file_size: int
    topics: Incarnations
    commit_range: tuple[int, int]
    with_keys: bool

    def directory_of(self, key: QueueKey) -> Path:
        """Return the directory of one queue."""
        assert self.directory is not None
        return self.directory / key[0] / str(key[1])

    def write(self, key: QueueKey, first: int, units: Any) -> None:
        """Write units of a queue from a queue offset on."""
        write_queue(self.directory_of(key), first, units.tobytes(), self.file_size)

    def finish(self, plan: QueuePlan) -> None:
        """Fill the first file before its first unit, and rebuild what no record says."""
        if plan.begin == plan.end:
            return
        begin, gaps = plan.begin - plan.begin % (self.file_size // UNIT_SIZE), plan.gaps
        if not plan.is_straight:
            remove_files(self.directory_of(plan.key))
            gaps = ((plan.begin, plan.end),)
        if plan.begin > begin:
            self.write(plan.key, begin, prefill_units(plan.begin - begin))
        for gap in gaps:
            self._rebuild(plan, *gap)

    def _rebuild(self, plan: QueuePlan, begin: int, end: int) -> None:
        """Rebuild units, which stay as the store has them where their records are damaged."""
        key = plan.key
        held = self.store.queue(*key).units(begin, end - begin)
        self.write(key, begin, held)
        files = QueueFiles.whole(self.store.filesystem, self.directory_of(key))
        extent = Extent(plan.begin, plan.end, *self.commit_range)
        since = max(self.topics.of(key[0]), plan.since)
        rebuilt = RebuiltUnits(self.store.log, *key, files, lambda: extent, since=lambda: since)
        run = rebuilt.rebuild(begin, end)
        made = run.units[begin - run.begin : end - run.begin]
        is_made = made["size"] > 0
        held[is_made] = made[is_made]
        self.write(key, begin, held)


def plan_queues(
    store: StoreView,
    runs: Mapping[QueueKey, Sequence[QueueRun]],
    damage: Sequence[DamagedRange],
    log_begin: int,
    *,
    sure_offset: int | None,
) -> list[QueuePlan]:
    """Lay out the queues of a store from their runs, which are in the order of the log, as is the damage.

    ``sure_offset`` is up to where the log was durable, None if that is not known.
    """
    plans = []
    for key, mine in runs.items():
        held = store.queue(*key)
        order = QueueOrder(None if mine else _end_before(held, log_begin), log_begin=log_begin)
        moved_count = sum(order.take(run, damage, held.holds) for run in mine)
        order.finish(damage, held.units, sure_offset=sure_offset)
        begin, end = order.begin_offset or 0, order.next_offset or 0
        gaps = tuple(order.suspects())
        if mine or begin < end:
            plans.append(
                QueuePlan(key, begin, end, order.since, order.is_straight, gaps, moved_count)
            )
    return plans


def _end_before(queue: QueueFiles, commit_offset: int) -> int:
    """Return the queue offset after the units of records before a commit offset."""
    if commit_offset == 0:
        return queue.files[0].start_offset // UNIT_SIZE if queue.files else 0
    return end_of_units(queue, commit_offset)


class PieceUnits:
    """The units of one piece of a log, gathered by queue: a file of a queue is opened once a piece."""

    def __init__(self) -> None:
        self._parts: dict[QueueKey, list[tuple[bytes, Longs]]] = {}

    def take(self, key: QueueKey, units: Units, queue_offsets: Longs) -> None:
        """Add units of a queue, and the queue offsets that their records say."""
        self._parts.setdefault(key, []).append((units.tobytes(), queue_offsets.copy()))

    def write(self, output: QueueOutput) -> None:
        """Write all units where their records say they are."""
        if output.directory is None:
            return
        for key, parts in self._parts.items():
            # Not np.concatenate: it would turn the big-endian fields into native ones.
            units = as_units(b"".join(part for part, _ in parts))
            offsets = np.concatenate([part for _, part in parts])
            placed = (offsets >= 0) & (offsets < QUEUE_OFFSET_LIMIT)
            units, offsets = units[placed], offsets[placed]
            for begin, end in consecutive(offsets) if len(units) else ():
                output.write(key, int(offsets[begin]), units[begin:end])
