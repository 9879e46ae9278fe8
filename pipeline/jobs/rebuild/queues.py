"""Consume queues from the log: units written where records say, then what the log alone cannot place.

A record says its queue offset, so each task writes the units of its pieces straight to their places. Then
the driver places the runs of every queue by the rule of recovery (``storage.view.queues.placing``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.consume_entry import UNIT_SIZE
from storage.stopped.files import write_queue
from storage.view.log.walk import DamagedRange
from storage.view.queues.placing import (
    NOT_PLACED,
    QUEUE_OFFSET_LIMIT,
    Begins,
    Gap,
    HeldUnits,
    Placed,
    QueuePlacer,
    Step,
    end_before,
    settle_ends,
)
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import QueueRun, consecutive
from storage.view.queues.units import UNIT_DTYPE, gap_units, prefill_units

if TYPE_CHECKING:
    from pipeline.jobs.runs import Units

Longs = npt.NDArray[np.int64]


class QueuePlaces(NamedTuple):
    """Where the records of one queue belong.

    From each commit offset of ``begins`` (ascending) on, those which claim queue offsets from ``claims`` on
    stand from ``places`` on, or nowhere (NOT_PLACED).
    """

    begins: Longs
    claims: Longs
    places: Longs

    def of(self, commit_offsets: Longs, queue_offsets: Longs) -> Longs:
        """Return the places of records which claim these queue offsets; NOT_PLACED for some."""
        run = np.searchsorted(self.begins, commit_offsets, "right") - 1
        first = self.places[run]
        placed: Longs = np.where(
            first == NOT_PLACED, NOT_PLACED, first + queue_offsets - self.claims[run]
        )
        return placed


Places = Mapping[QueueKey, QueuePlaces]


@dataclass(slots=True)
class QueuePlan:
    """How one queue is laid out, as steps come in: where it begins and ends, its gaps and places.

    ``unit_count`` records have a unit; ``moved_count`` of them do not stand where they claim.
    """

    key: QueueKey
    begin: int = 0
    end: int = 0
    unit_count: int = 0
    moved_count: int = 0
    gaps: list[Gap] = field(default_factory=list)
    _places: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """Take the next step of the queue's placer."""
        if isinstance(step, Placed):
            run, count = step.run, step.run.end - step.run.begin
            self._places.append((run.commit_offset, run.begin, step.place))
            if step.place == NOT_PLACED:
                return
            self.unit_count += count
            self.moved_count += count if step.place != run.begin else 0
            self.end = step.place + count
        elif isinstance(step, Gap):
            self.gaps.append(step)
            self.end = step.end
        elif isinstance(step, Begins):
            self._places = [(at, claim, NOT_PLACED) for at, claim, _ in self._places]
            self.gaps.clear()
            self.unit_count = self.moved_count = 0
            self.begin = self.end = step.queue_offset
        else:
            self.unit_count -= 1
            _, claim, place = self._places[-1]
            self.moved_count -= claim != place
            self._places.append((step.commit_offset, claim, NOT_PLACED))
            self.end = step.place

    @property
    def as_written(self) -> bool:
        """Whether every record stands where it claims."""
        return all(claim == place for _, claim, place in self._places)

    @property
    def places(self) -> QueuePlaces:
        """Where records belong."""
        return QueuePlaces(*np.array(self._places, np.int64).T)


def plan_queues(
    runs: Mapping[QueueKey, Sequence[QueueRun]],
    damage: Sequence[DamagedRange],
    log_begin: int,
    held: HeldUnits,
    *,
    sure_offset: int | None,
) -> list[QueuePlan]:
    """Lay out the queues of a store from their runs, which are in the order of the log, as is the damage.

    ``sure_offset`` is up to where the log was durable, None if that is not known.
    """
    plans = {key: QueuePlan(key) for key in runs}
    placers = {}
    for key, mine in runs.items():
        if mine:
            placers[key] = QueuePlacer(key, held, damage, log_begin=log_begin)
        else:
            begin = end_before(held.queue(key), log_begin)
            placers[key] = QueuePlacer(key, held, damage, next_offset=begin)
            plans[key].add(Begins(begin))
        for run in mine:
            placers[key].take(run)
    for key, step in settle_ends(placers, sure_offset=sure_offset):
        plans[key].add(step)
    return [plan for key, plan in plans.items() if runs[key] or plan.begin < plan.end]


def write_units(
    directory: Path, units: Mapping[QueueKey, Units], file_size: int, places: Places | None = None
) -> None:
    """Write the units of a piece; with ``places`` only of the queues in there, and there."""
    for key, (made, offsets) in units.items():
        if places is not None:
            if key not in places:
                continue
            offsets = places[key].of(made["offset"].astype(np.int64), offsets)
        placed = (offsets >= 0) & (offsets < QUEUE_OFFSET_LIMIT)
        if np.any(placed):
            made, offsets = made[placed], offsets[placed]
            for begin, end in consecutive(offsets):
                write_run(directory, key, int(offsets[begin]), made[begin:end], file_size)


def write_run(directory: Path, key: QueueKey, first: int, units: Any, file_size: int) -> None:
    """Write units from queue offset ``first`` on; files that are not there are made, zeros inside."""
    write_queue(directory / key[0] / str(key[1]), first, units.tobytes(), file_size)


def finish_queue(
    directory: Path, plan: QueuePlan, open_held: Callable[[], QueueFiles], file_size: int
) -> None:
    """Fill what no record fills: the first file before its first unit, and gaps.

    Units of damaged records stay as the queue has them (``open_held``) that point into the damage.
    """
    if plan.begin == plan.end:
        return
    begin = plan.begin - plan.begin % (file_size // UNIT_SIZE)
    if plan.begin > begin:
        write_run(directory, plan.key, begin, prefill_units(plan.begin - begin), file_size)
    for gap in plan.gaps:
        held = np.zeros(gap.end - gap.begin, UNIT_DTYPE)
        found = open_held().units(gap.begin, len(held))
        held[: len(found)] = found
        write_run(directory, plan.key, gap.begin, gap_units(held, gap.ranges), file_size)


def misplaced(plans: Sequence[QueuePlan]) -> Iterator[tuple[QueueKey, QueuePlaces]]:
    """Yield the places of the queues that are not as their records say."""
    for plan in plans:
        if not plan.as_written:
            yield plan.key, plan.places
