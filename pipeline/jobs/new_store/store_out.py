"""Writing new stores from records of others, in parallel.

Two passes over slabs (see ``slabs``). The first measures: how many bytes and how many records of each
queue every slab gives to each new store. Sums of that say where each slab's records go, in the log
and in their queues; where a log file ends inside a slab, the driver looks at that slab's sizes. The
second pass copies: each task writes its records straight to their places, with new queue offsets,
commit offsets and property CRCs, and nothing else changed. Writing twice writes the same bytes, so a
task may run again or twice at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.jobs.new_store.queue_plan import (
    QueuePart,
    QueuePlan,
    SourceQueue,
    light_offsets,
    refuse_moved_light_queues,
)
from pipeline.jobs.new_store.slab_layout import Change, Layout, sizes_of
from pipeline.jobs.new_store.slab_writing import Moved, Target, Watched, write_slab
from pipeline.jobs.new_store.slabs import Served, Slab, Taken, slab_tasks, take
from storage.format.names import file_name
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import FEATURES, HAS_MULTI_DISPATCH, QUEUE_OFFSET, STORE_TIMESTAMP
from storage.view.layout import LOG_DIRECTORY
from storage.view.log.walk import Damage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.progress import Progress


@dataclass
class Measured:
    """What a slab gives to one new store."""

    records: int = 0
    size: int = 0
    last_timestamp_ms: int = 0
    queues: dict[SourceQueue, QueuePart] = field(default_factory=dict)
    light: dict[SourceQueue, list[int]] = field(default_factory=dict)


@dataclass
class Written:
    """One new log."""

    records: int
    size: int
    last_timestamp_ms: int
    queues: QueuePlan
    light_queues: tuple[str, ...]
    moved: Moved


@dataclass(frozen=True)
class LogsWritten:
    """All new logs, in the order asked for, and the damage that was left out, by store."""

    logs: list[Written]
    damage: list[tuple[int, Damage]]


def write_logs(
    spark: SparkSession,
    slabs: Sequence[Slab],
    choose: Served,
    change: Change,
    directories: Sequence[Path],
    *,
    file_size: int,
    keep_offsets: bool,
    watched: Watched,
    progress: Progress,
) -> LogsWritten:
    """Write one new log for each directory; nothing is durable before the directory is synced.

    Without ``keep_offsets`` every queue begins at 0. ``watched`` are places in old queues to find
    again in the new ones. Raises PipelineError for records that fit into no file, and for light
    queues that would not keep their offsets.
    """
    counter = progress.counter
    progress.step = "measuring"
    measure = partial(_measure_slab, choose=choose, change=change, counter=counter)
    measured: list[tuple[dict[int, Measured], list[tuple[int, Damage]]]] = slab_tasks(
        spark, slabs, measure, cost=lambda slab: slab.cost
    )
    targets: list[dict[int, Target]] = [{} for _ in slabs]
    logs = []
    for output, directory in enumerate(directories):
        mine = [
            (number, found[output]) for number, (found, _) in enumerate(measured) if output in found
        ]
        plan = QueuePlan.of(
            [given.queues for _, given in mine], change.key, keep_offsets=keep_offsets
        )
        refuse_moved_light_queues([given.light for _, given in mine])
        light = {source.topic for _, given in mine for source in given.light}
        end = 0
        for number, given in mine:
            targets[number][output] = Target(
                str(directory), file_size, end, plan.advance(given.queues)
            )
            end = _end_of(slabs[number], output, given, end, file_size, choose, change)
        _make_files(directory, end, file_size)
        last = max((given.last_timestamp_ms for _, given in mine), default=0)
        records = sum(given.records for _, given in mine)
        logs.append(Written(records, end, last, plan, tuple(sorted(light)), {}))
    progress.step = "writing"
    work = list(zip(slabs, targets, strict=True))
    used = [item for item in work if item[1]]
    write = partial(write_slab, choose=choose, change=change, watched=watched, counter=counter)
    for found in slab_tasks(spark, used, write, cost=lambda item: item[0].cost):
        for output, moved in found.items():
            for place, offset in moved.items():
                known = logs[output].moved.get(place, offset)
                logs[output].moved[place] = min(known, offset)
    return LogsWritten(logs, [each for _, damage in measured for each in damage])


def _measure_slab(
    slab: Slab, *, choose: Served, change: Change, counter: Any
) -> tuple[dict[int, Measured], list[tuple[int, Damage]]]:
    chosen = take(slab, choose)
    found: dict[int, Measured] = {}
    for output, taken in chosen.outputs.items():
        result = found.setdefault(output, Measured())
        for part in taken:
            result.records += len(part.rows)
            result.size += int(sizes_of(part, change).sum())
            result.last_timestamp_ms = max(
                result.last_timestamp_ms, int(part.rows[:, STORE_TIMESTAMP].max())
            )
            _note_queues(part, result)
    counter.add(slab.cost)
    return found, chosen.damage


def _note_queues(part: Taken, result: Measured) -> None:
    for number in np.unique(part.key_of).tolist():
        offsets = part.rows[part.key_of == number, QUEUE_OFFSET]
        whole = bool((np.diff(offsets) == 1).all())
        found = QueuePart(len(offsets), int(offsets[0]), int(offsets[-1]), whole)
        key = SourceQueue(part.store, *part.keys[number])
        result.queues[key] = result.queues[key].then(found) if key in result.queues else found
    light = part.rows[(part.rows[:, FEATURES] & HAS_MULTI_DISPATCH) != 0]
    for name, offsets_in_it in light_offsets(part.data, light).items():
        result.light.setdefault(SourceQueue(part.store, name, 0), []).extend(offsets_in_it)


def _end_of(
    slab: Slab, output: int, given: Measured, begin: int, file_size: int, choose: Served,
    change: Change,
) -> int:  # fmt: skip
    left = file_size - begin % file_size
    if given.size + BLANK_SIZE <= left:
        return begin + given.size
    return Layout(take(slab, choose).outputs[output], change, begin, file_size).end


def _make_files(directory: Path, end: int, file_size: int) -> None:
    log = directory / LOG_DIRECTORY
    log.mkdir(parents=True)
    for start in range(0, end, file_size):
        with (log / file_name(start)).open("xb") as file:
            file.truncate(file_size)
