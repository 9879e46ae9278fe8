"""The passes of ``rebuild``, over the logs of all stores at once.

The first writes all units where records say they belong and counts the keys of every piece. Then the
driver lays out the queues, and tasks rebuild what no record says. The last pass makes index files.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.jobs.rebuild.index import (
    IndexTask,
    KeyCount,
    count_keys,
    plan_index,
    write_index_file,
)
from pipeline.jobs.rebuild.queues import (
    PieceUnits,
    QueueOutput,
    QueuePlan,
    plan_queues,
)
from pipeline.jobs.work import in_tasks, lost_files, run_each, run_tasks, walk_piece
from storage.view.incarnations import Incarnations
from storage.view.index.index_file import IndexShape
from storage.view.log.commit_log import EVERYTHING
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange
from storage.view.pieces import LogPiece
from storage.view.queues.comparison import RangeCheck
from storage.view.queues.queue_order import joined_damage
from storage.view.queues.units import UnitBuilder
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.progress import JobProgress


@dataclass
class StoreWork:
    """One store in the driver, and where what is made of it is built."""

    files: StoreView
    plan: StorePlan
    target: Path
    queues: Path | None
    index: Path | None
    file_size: int
    shape: IndexShape
    topics: Incarnations
    pieces: list[LogPiece] = field(default_factory=list)
    check: RangeCheck = field(default_factory=RangeCheck)
    keys: list[KeyCount] = field(default_factory=list)
    plans: list[QueuePlan] = field(default_factory=list)
    index_files: int = 0

    @property
    def damage(self) -> list[DamagedRange]:
        """Damaged ranges of the log and lost files, in order."""
        lost = [*lost_files(self.files), *([] if self.lost_end is None else [self.lost_end])]
        return sorted([*self.check.damage, *lost], key=lambda each: each.begin_offset)

    @property
    def output(self) -> QueueOutput:
        """What tasks know of the store."""
        bounds = self.plan.bounds
        return QueueOutput(
            self.files, self.queues, self.file_size, self.topics,
            (bounds.min_offset, bounds.end_offset), with_keys=self.index is not None,
        )  # fmt: skip

    @cached_property
    def lost_end(self) -> DamagedRange | None:
        """What is gone with the last files of the log."""
        return self.files.lost_end()

    @property
    def sure_offset(self) -> int | None:
        """Up to where the log was durable, None if that is not known."""
        durable = self.files.checkpoint.durable
        if not durable.trusted or self.lost_end is None:
            return durable.flushed_offset if durable.trusted else None
        return max(durable.flushed_offset, self.lost_end.end_offset)


def first_pass(spark: SparkSession, stores: Sequence[StoreWork], progress: JobProgress) -> None:
    """Write all units where records say they are, and count the keys of every piece."""
    outputs = {str(store.files): store.output for store in stores}
    pieces = [piece for store in stores for piece in store.pieces]
    run = partial(walk_pieces, outputs=outputs, count=progress.counter.add)
    by_name = {str(store.files): store for store in stores}
    for group in run_tasks(spark, in_tasks(spark, pieces), run):
        for name, check, keys in group:
            by_name[name].check.add(check)
            by_name[name].keys.append(keys)


def walk_pieces(
    pieces: Sequence[LogPiece],
    *,
    outputs: dict[str, QueueOutput],
    count: Callable[[int], None],
) -> list[tuple[str, RangeCheck, KeyCount]]:
    """Write the units of pieces and count their keys; return of each what it holds, with the name of its store."""
    found = []
    builder = UnitBuilder(RANGE_ROWS_MAX)
    for piece in pieces:
        output = outputs[str(piece.store)]
        check, units = RangeCheck(), PieceUnits()
        for step in walk_piece(piece):
            if isinstance(step, DamagedRange):
                check.damage.append(step)
                continue
            for of_queue in check.units_of(step, builder, output.topics, EVERYTHING):
                units.take(*of_queue)
        units.write(output)
        keys = count_keys(piece) if output.with_keys else KeyCount()
        found.append((str(piece.store), check, keys))
        count(piece.cost)
    return found


def finish_queues(spark: SparkSession, store: StoreWork) -> None:
    """Lay out every queue; rebuild what its records do not say."""
    if store.queues is None:
        return
    runs = store.check.runs
    damage = joined_damage(store.damage)
    if damage:  # of queues whose records are all damaged, the places are kept
        runs = {key[:2]: [] for key in store.files.queue_directories()} | runs
    bounds = store.plan.bounds
    store.plans = plan_queues(
        store.files, runs, damage, bounds.min_offset, sure_offset=store.sure_offset
    )
    work = store.output
    doubted = [plan for plan in store.plans if plan.gaps or not plan.is_straight]
    run_each(spark, doubted, work.finish, cost=lambda plan: plan.end - plan.begin)
    for plan in store.plans:
        if not plan.gaps and plan.is_straight:
            work.finish(plan)


def make_index_files(
    spark: SparkSession, stores: Sequence[StoreWork], progress: JobProgress
) -> None:
    """Make the index files of all stores, one task a file."""
    tasks: list[IndexTask] = []
    for store in stores:
        if store.index is None:
            continue
        names = [int(file.name) for file in store.files.index_files()]
        mine = plan_index(
            store.pieces,
            store.keys,
            store.shape,
            store.index,
            max(names, default=0),
            time.time_ns() // 1_000_000,
        )
        store.index_files = len(mine)
        tasks += mine
    progress.step = "index"
    progress.grow(sum(piece.cost for task in tasks for piece in task.pieces))
    run_tasks(spark, tasks, partial(write_index_file, count=progress.counter.add))
