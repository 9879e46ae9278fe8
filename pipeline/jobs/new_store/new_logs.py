"""Writing new stores from records of others, in parallel.

Two passes over slices (see ``log_slices``). The first measures: how many bytes and how many records of each
queue every slice gives to each new store. Sums of that say where each slice's records go, in the log
and in their queues; where a log file ends inside a slice, the driver looks at that slice's sizes. The
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

from pipeline.jobs.new_store.log_layout import LogLayout, RecordChange, sizes_of
from pipeline.jobs.new_store.log_slices import (
    LogSlice,
    ServedRecords,
    SliceRecords,
    read_slice,
)
from pipeline.jobs.new_store.log_writing import Moved, SliceTarget, Watched, write_slice
from pipeline.jobs.new_store.new_queues import (
    NewQueues,
    QueuePart,
    SourceQueue,
    light_offsets,
    refuse_moved_light_queues,
)
from pipeline.jobs.work import run_each
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import FEATURES, HAS_MULTI_DISPATCH, QUEUE_OFFSET, STORE_TIMESTAMP
from storage.stopped.files import make_log_files
from storage.view.log.walk import DamagedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.jobs.progress import JobProgress


@dataclass
class SliceSizes:
    """What a slice gives to one new store."""

    records: int = 0
    size: int = 0
    last_timestamp_ms: int = 0
    queues: dict[SourceQueue, QueuePart] = field(default_factory=dict)
    light: dict[SourceQueue, list[int]] = field(default_factory=dict)


@dataclass
class NewLog:
    """One new log."""

    records: int
    size: int
    last_timestamp_ms: int
    queues: NewQueues
    light_queues: tuple[str, ...]
    moved: Moved


def write_logs(
    spark: SparkSession,
    slices: Sequence[LogSlice],
    selection: ServedRecords,
    change: RecordChange,
    directories: Sequence[Path],
    *,
    file_size: int,
    keep_offsets: bool,
    watched: Watched,
    progress: JobProgress,
) -> tuple[list[NewLog], list[tuple[int, DamagedRange]]]:
    """Write one new log for each directory; nothing is durable before the directory is synced.

    Returns the logs, in the order asked for, and the damage that was left out, by store.

    Without ``keep_offsets`` every queue begins at 0. ``watched`` are places in old queues to find
    again in the new ones. Raises PipelineError for records that fit into no file, and for light
    queues that would not keep their offsets.
    """
    counter = progress.counter
    progress.step = "measuring"
    measure = partial(_measure_slice, selection=selection, change=change, counter=counter)
    measured: list[tuple[dict[int, SliceSizes], list[tuple[int, DamagedRange]]]] = run_each(
        spark, slices, measure, cost=lambda log_slice: log_slice.cost
    )
    targets: list[dict[int, SliceTarget]] = [{} for _ in slices]
    logs = []
    for output, directory in enumerate(directories):
        mine = [
            (number, found[output]) for number, (found, _) in enumerate(measured) if output in found
        ]
        plan = NewQueues.of(
            [given.queues for _, given in mine], change.key, keep_offsets=keep_offsets
        )
        refuse_moved_light_queues([given.light for _, given in mine])
        light = {source.topic for _, given in mine for source in given.light}
        end = 0
        for number, given in mine:
            targets[number][output] = SliceTarget(
                str(directory), file_size, end, plan.advance(given.queues)
            )
            end = _end_of(slices[number], output, given, end, file_size, selection, change)
        make_log_files(directory, end, file_size)
        last = max((given.last_timestamp_ms for _, given in mine), default=0)
        records = sum(given.records for _, given in mine)
        logs.append(NewLog(records, end, last, plan, tuple(sorted(light)), {}))
    progress.step = "writing"
    work = list(zip(slices, targets, strict=True))
    used = [item for item in work if item[1]]
    write = partial(
        write_slice, selection=selection, change=change, watched=watched, counter=counter
    )
    for found in run_each(spark, used, write, cost=lambda item: item[0].cost):
        for output, moved in found.items():
            for place, offset in moved.items():
                known = logs[output].moved.get(place, offset)
                logs[output].moved[place] = min(known, offset)
    return logs, [each for _, damage in measured for each in damage]


def _measure_slice(
    log_slice: LogSlice, *, selection: ServedRecords, change: RecordChange, counter: Any
) -> tuple[dict[int, SliceSizes], list[tuple[int, DamagedRange]]]:
    chosen = read_slice(log_slice, selection)
    found: dict[int, SliceSizes] = {}
    for output, taken in chosen.outputs.items():
        result = found.setdefault(output, SliceSizes())
        for part in taken:
            result.records += len(part.rows)
            result.size += int(sizes_of(part, change).sum())
            result.last_timestamp_ms = max(
                result.last_timestamp_ms, int(part.rows[:, STORE_TIMESTAMP].max())
            )
            _note_queues(part, result)
    counter.add(log_slice.cost)
    return found, chosen.damage


def _note_queues(part: SliceRecords, result: SliceSizes) -> None:
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
    log_slice: LogSlice, output: int, given: SliceSizes, begin: int, file_size: int, selection: ServedRecords,
    change: RecordChange,
) -> int:  # fmt: skip
    left = file_size - begin % file_size
    if given.size + BLANK_SIZE <= left:
        return begin + given.size
    return LogLayout(read_slice(log_slice, selection).outputs[output], change, begin, file_size).end
