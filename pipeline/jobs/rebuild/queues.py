"""Consume queues from the log: units written where they belong, then what the log alone cannot place.

A record says its queue offset, so each task writes the units of its pieces straight to their places.
Three things are settled by the driver, as recovery settles them. Where a queue's offsets jump and the
log is damaged there, the units between point at the damage, and so they do where the offset is sure:
its unit stands there, or the next record goes on from it. Where they jump otherwise, the offset is
wrong, and the record follows the one before. Where they begin again at 0, the topic was deleted and
made again, and the earlier records left the queue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline.jobs.runs import QueueRun, consecutive
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.names import file_name
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.log.walk import DamagedRange
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.units import UNIT_DTYPE
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pipeline.jobs.runs import Units

SIZE_MAX: Final = PREFILL_SIZE - 1
QUEUE_OFFSET_MAX: Final = 1 << 58  # times the size of a unit, it is still a position
NOT_PLACED: Final = -1
Places = Mapping[tuple[QueueKey, int], int]
"""Where a run goes, by its queue and the commit offset of its first record."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Queue offsets ``[begin, end)`` without a record, and where in the log they were, if damaged."""

    key: QueueKey
    begin: int
    end: int
    damage: DamagedRange


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """How one queue is laid out: where it begins and ends, what its runs' places are, its gaps."""

    key: QueueKey
    begin: int
    end: int
    places: dict[int, int]  # by commit offset, of every run; NOT_PLACED where it left the queue
    gaps: list[Gap]
    as_written: bool


def write_units(
    directory: Path, units: Mapping[QueueKey, Units], file_size: int, places: Places | None = None
) -> None:
    """Write the units of a piece; with ``places`` only runs that have one, and there."""
    for key, (made, offsets) in units.items():
        for begin, end in consecutive(offsets):
            first = int(offsets[begin])
            if places is not None:
                first = places.get((key, int(made["offset"][begin])), NOT_PLACED)
            if 0 <= first < QUEUE_OFFSET_MAX:
                write_run(directory, key, first, made[begin:end], file_size)


def write_run(directory: Path, key: QueueKey, first: int, units: Any, file_size: int) -> None:
    """Write units from queue offset ``first`` on; files that are not there are made, zeros inside."""
    place = directory / key[0] / str(key[1])
    place.mkdir(parents=True, exist_ok=True)
    data = memoryview(units.tobytes())
    position = first * UNIT_SIZE
    while data:
        start = position - position % file_size
        room = min(len(data), start + file_size - position)
        descriptor = os.open(place / file_name(start), os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            os.ftruncate(descriptor, file_size)
            os.pwrite(descriptor, data[:room], position - start)
        finally:
            os.close(descriptor)
        data, position = data[room:], position + room


def plan_queue(
    key: QueueKey,
    runs: Sequence[QueueRun],
    damage: Sequence[DamagedRange],
    log_begin: int,
    open_held: Callable[[], QueueFiles],
) -> QueuePlan:
    """Lay out a queue from its runs, which are in the order of the log, as is the damage.

    Of one record's word alone, where the queue as it is (``open_held``) has its unit counts for more.
    """
    first = _first_offset(runs, open_held)
    if log_begin == 0 and any(each.begin_offset < runs[0].commit_offset for each in damage):
        first = 0  # what came before was damaged, not removed
    begin = next_offset = first
    places: dict[int, int] = {}
    gaps: list[Gap] = []
    last_offset = -1
    for run in runs:
        length = run.end - run.begin
        if run.begin > next_offset:
            between = [
                each for each in damage if last_offset < each.begin_offset < run.commit_offset
            ]
            room = sum(each.end_offset - each.begin_offset for each in between)
            if (run.begin - next_offset) * RECORD_SIZE_MIN <= room:
                gaps.append(Gap(key, next_offset, run.begin, between[-1]))
                next_offset = run.begin
            elif _is_sure(run, next_offset, last_offset, open_held):
                other = DamagedRange(
                    last_offset + RECORD_SIZE_MIN, run.commit_offset, "a record of another name"
                )
                gaps.append(Gap(key, next_offset, run.begin, other))
                next_offset = run.begin
        elif run.begin == 0 < next_offset and (
            length > 1 or _holds(open_held(), 0, run.commit_offset)
        ):
            places = dict.fromkeys(places, NOT_PLACED)
            gaps.clear()
            begin = next_offset = 0
        places[run.commit_offset] = next_offset
        next_offset += length
        last_offset = run.last_commit_offset
    as_written = all(places[run.commit_offset] == run.begin for run in runs)
    return QueuePlan(key, begin, next_offset, places, gaps, as_written)


def _is_sure(
    run: QueueRun, next_offset: int, last_offset: int, open_held: Callable[[], QueueFiles]
) -> bool:
    """Whether a run's queue offset is right, and records before it, after ``last_offset``, are missing."""
    missing = run.begin - next_offset
    if (missing + 1) * RECORD_SIZE_MIN > run.commit_offset - last_offset:
        return False
    held = open_held()
    if _holds(held, run.begin, run.commit_offset):
        return True
    return run.end - run.begin > 1 and not _holds(held, next_offset, run.commit_offset)


def _first_offset(runs: Sequence[QueueRun], open_held: Callable[[], QueueFiles]) -> int:
    """Return where a queue begins."""
    first, following = runs[0], runs[1] if len(runs) > 1 else None
    likely = max(first.begin, 0)
    if first.end - first.begin > 1 or (following is not None and following.begin == first.end):
        return likely
    place = _place_held(open_held(), first.commit_offset, likely)
    if place is not None:
        return place
    if following is not None and following.end - following.begin > 1 and following.begin > 0:
        return following.begin - 1  # what the two records after it agree on
    return likely


def _place_held(held: QueueFiles, commit_offset: int, likely: int) -> int | None:
    """Return the queue offset at which a queue has a record's unit; ``likely`` is looked at first."""
    if likely < QUEUE_OFFSET_MAX and _holds(held, likely, commit_offset):
        return likely
    for file in held.files:
        first, count = file.start_offset // UNIT_SIZE, file.size // UNIT_SIZE
        units = held.units(first, count)
        found = np.flatnonzero((units["offset"] == commit_offset) & (units["size"] > 0))
        if len(found):
            return first + int(found[0])
    return None


def _holds(held: QueueFiles, queue_offset: int, commit_offset: int) -> bool:
    offset, size, _ = held.unit(queue_offset)
    return size > 0 and offset == commit_offset


def finish_queue(directory: Path, plan: QueuePlan, held: QueueFiles | None, file_size: int) -> None:
    """Fill what no record fills: the first file before its first unit, and gaps.

    Units of damaged records stay as ``held``, the queue as it was, has them, where those point into the
    damage.
    """
    begin = plan.begin - plan.begin % (file_size // UNIT_SIZE)
    if plan.begin > begin:
        units = np.zeros(plan.begin - begin, UNIT_DTYPE)
        units["size"] = PREFILL_SIZE
        write_run(directory, plan.key, begin, units, file_size)
    for gap in plan.gaps:
        units = np.zeros(gap.end - gap.begin, UNIT_DTYPE)
        units["offset"] = gap.damage.begin_offset
        units["size"] = min(max(gap.damage.end_offset - gap.damage.begin_offset, 1), SIZE_MAX)
        if held is not None:
            kept = held.units(gap.begin, len(units))
            inside = (kept["offset"] >= gap.damage.begin_offset) & (
                kept["offset"] < gap.damage.end_offset
            )
            inside &= kept["size"] > 0
            units[: len(kept)][inside] = kept[inside]
        write_run(directory, plan.key, gap.begin, units, file_size)


def held_queue(store: StoreView, key: QueueKey) -> QueueFiles:
    """Return a store's queue as it is, every unit of it."""
    return store.queue(*key)


def misplaced(plans: Sequence[QueuePlan]) -> Iterator[tuple[tuple[QueueKey, int], int]]:
    """Yield the place of every run of the queues that are not as their records say."""
    for plan in plans:
        if not plan.as_written:
            for commit_offset, place in plan.places.items():
                yield (plan.key, commit_offset), place
