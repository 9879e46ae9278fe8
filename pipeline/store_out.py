"""Writing new stores from records of others, in parallel.

Two passes over slabs (see ``slabs``). The first measures: how many bytes and how many records of each
queue every slab gives to each new store. Sums of that say where each slab's records go, in the log
and in their queues; where a log file ends inside a slab, the driver looks at that slab's sizes. The
second pass copies: each task writes its records straight to their places, with new queue offsets,
commit offsets and property CRCs, and nothing else changed. Writing twice writes the same bytes, so a
task may run again or twice at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.placing import lay_out, place_at, placed_sizes
from pipeline.plan import QueueKey
from pipeline.queue_plan import (
    QueuePart,
    QueuePlan,
    SourceQueue,
    light_offsets,
    refuse_moved_light_queues,
)
from pipeline.slabs import Chosen, Served, Slab, Taken, slab_tasks, take, time_order
from pipeline.store_files import LOG_DIRECTORY
from pipeline.walk import Hole
from storage.format.names import file_name
from storage.format.record import BLANK_SIZE, encode_blank
from storage.kernels.columns import (
    FEATURES,
    HAS_MULTI_DISPATCH,
    QUEUE_OFFSET,
    STORE_TIMESTAMP,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.progress import Progress

Longs = npt.NDArray[np.int64]
NO_BYTES: Final = np.empty(0, np.uint8)
NO_LONGS: Final = np.empty(0, np.int64)
Watched = Mapping[SourceQueue, Sequence[int]]
Moved = dict[tuple[SourceQueue, int], int]


@dataclass(frozen=True)
class Change:
    """What becomes of a record besides its place: a new topic, and properties of its own.

    ``queue_count`` brings queue ids below it, by their remainder. ``marks`` gives the bytes of one
    more property for each record, as ``(bytes, where each begins and the last ends)``.
    """

    topic: str = ""
    queue_count: int = 0

    def key(self, key: QueueKey) -> QueueKey:
        """Return the queue that records of a queue go into."""
        topic, queue_id = key
        if self.queue_count:
            queue_id %= self.queue_count
        return self.topic or topic, queue_id

    def marks(
        self,
        taken: Taken,  # noqa: ARG002  for jobs that mark
    ) -> tuple[npt.NDArray[np.uint8], Longs]:
        """Return the additional property of each record; none by default."""
        return NO_BYTES, NO_LONGS


@dataclass
class Measured:
    """What a slab gives to one new store."""

    records: int = 0
    size: int = 0
    last_timestamp_ms: int = 0
    queues: dict[SourceQueue, QueuePart] = field(default_factory=dict)
    light: dict[SourceQueue, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """Where a slab's records go in one new store: its log, the first byte, the next queue offsets."""

    directory: str
    file_size: int
    begin: int
    next_offsets: Mapping[QueueKey, int]


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
    holes: list[tuple[int, Hole]]


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
    measured: list[tuple[dict[int, Measured], list[tuple[int, Hole]]]] = slab_tasks(
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
    write = partial(_write_slab, choose=choose, change=change, watched=watched, counter=counter)
    for found in slab_tasks(spark, used, write, cost=lambda item: item[0].cost):
        for output, moved in found.items():
            for place, offset in moved.items():
                known = logs[output].moved.get(place, offset)
                logs[output].moved[place] = min(known, offset)
    return LogsWritten(logs, [hole for _, holes in measured for hole in holes])


def _measure_slab(
    slab: Slab, *, choose: Served, change: Change, counter: Any
) -> tuple[dict[int, Measured], list[tuple[int, Hole]]]:
    chosen = take(slab, choose)
    found: dict[int, Measured] = {}
    for output, taken in chosen.outputs.items():
        result = found.setdefault(output, Measured())
        for part in taken:
            result.records += len(part.rows)
            result.size += int(_sizes_of(part, change).sum())
            result.last_timestamp_ms = max(
                result.last_timestamp_ms, int(part.rows[:, STORE_TIMESTAMP].max())
            )
            _note_queues(part, result)
    counter.add(slab.cost)
    return found, chosen.holes


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


def _sizes_of(part: Taken, change: Change) -> Longs:
    sizes = np.empty(len(part.rows), np.int64)
    _, starts = change.marks(part)
    total = int(placed_sizes(part.data, part.rows, len(change.topic), starts, sizes))
    if total < 0:
        row = part.rows[-1 - total]
        raise PipelineError(
            f"a record of queue {int(row[QUEUE_OFFSET])} has no room for one more property"
        )
    return sizes


class _Layout:
    """The records that a slab gives to one output, and where each goes."""

    def __init__(self, taken: Sequence[Taken], change: Change, begin: int, file_size: int) -> None:
        self.taken = taken
        self.order = time_order(taken)
        self.sizes = np.concatenate([_sizes_of(part, change) for part in taken])
        ordered = self.sizes if self.order is None else self.sizes[self.order]
        offsets = np.empty(len(ordered), np.int64)
        self.end = int(lay_out(ordered, begin, file_size, offsets))
        if self.end < 0:
            raise PipelineError(
                f"a record of {int(ordered[-1 - self.end])} bytes does not fit into a commit log file"
                f" of {file_size}; choose a greater log_file_size"
            )
        self.offsets = self.unordered(offsets)

    def unordered(self, values: Longs) -> Longs:
        """Bring values in the order of the log into the order of ``taken``."""
        if self.order is None:
            return values
        found = np.empty_like(values)
        found[self.order] = values
        return found

    def queue_offsets(self, numbers: Longs, nexts: Longs) -> Longs:
        """Count up each queue in the log's order; ``numbers`` says which queue a record goes to."""
        ordered = numbers if self.order is None else numbers[self.order]
        by_queue = np.argsort(ordered, kind="stable")
        sorted_numbers = ordered[by_queue]
        begins = np.searchsorted(sorted_numbers, np.arange(len(nexts)))
        ranks = np.empty(len(ordered), np.int64)
        ranks[by_queue] = np.arange(len(ordered)) - begins[sorted_numbers]
        return self.unordered(nexts[ordered] + ranks)


def _end_of(
    slab: Slab, output: int, given: Measured, begin: int, file_size: int, choose: Served,
    change: Change,
) -> int:  # fmt: skip
    left = file_size - begin % file_size
    if given.size + BLANK_SIZE <= left:
        return begin + given.size
    return _Layout(take(slab, choose).outputs[output], change, begin, file_size).end


def _make_files(directory: Path, end: int, file_size: int) -> None:
    log = directory / LOG_DIRECTORY
    log.mkdir(parents=True)
    for start in range(0, end, file_size):
        with (log / file_name(start)).open("xb") as file:
            file.truncate(file_size)


def _write_slab(
    item: tuple[Slab, dict[int, Target]],
    *,
    choose: Served,
    change: Change,
    watched: Watched,
    counter: Any,
) -> dict[int, Moved]:
    slab, targets = item
    chosen: Chosen = take(slab, choose)
    moved = {
        output: _write_output(chosen.outputs[output], target, change, watched)
        for output, target in targets.items()
    }
    counter.add(slab.cost)
    return moved


def _write_output(
    taken: Sequence[Taken],
    target: Target,
    change: Change,
    watched: Watched,
) -> Moved:
    layout = _Layout(taken, change, target.begin, target.file_size)
    names = {key: number for number, key in enumerate(target.next_offsets)}
    numbers = np.concatenate([_numbers(part, names, change) for part in taken])
    nexts = np.array(list(target.next_offsets.values()), np.int64)
    queue_ids = np.array([queue_id for _, queue_id in target.next_offsets], np.int64)[numbers]
    queue_offsets = layout.queue_offsets(numbers, nexts)
    _write_log(layout, target, change, queue_ids, queue_offsets)
    return _find_again(taken, queue_offsets, watched)


def _numbers(part: Taken, names: Mapping[QueueKey, int], change: Change) -> Longs:
    used, places = np.unique(part.key_of, return_inverse=True)
    found = [names[change.key(part.keys[number])] for number in used.tolist()]
    return np.array(found, np.int64)[places]


def _find_again(taken: Sequence[Taken], queue_offsets: Longs, watched: Watched) -> Moved:
    """Find, for each watched place, the new offset of the first record at or behind it."""
    found: Moved = {}
    if not watched:
        return found
    at = 0
    for part in taken:
        news = queue_offsets[at : at + len(part.rows)]
        at += len(part.rows)
        for number in np.unique(part.key_of).tolist():
            key = SourceQueue(part.store, *part.keys[number])
            mine = part.key_of == number
            olds, new = part.rows[mine, QUEUE_OFFSET], news[mine]
            for wanted in watched.get(key, ()):
                behind = np.flatnonzero(olds >= wanted)
                if len(behind):
                    offset = int(new[behind[0]])
                    found[key, wanted] = min(found.get((key, wanted), offset), offset)
    return found


def _write_log(
    layout: _Layout, target: Target, change: Change, queue_ids: Longs, queue_offsets: Longs
) -> None:
    """Write the records, file by file, and a blank where each file but the last ends."""
    size = target.file_size
    ends = layout.offsets + layout.sizes
    file_of = layout.offsets // size
    position = target.begin
    topic = np.frombuffer(change.topic.encode(), np.uint8)
    marks = [change.marks(part) for part in layout.taken]
    bounds = np.cumsum([0, *(len(part.rows) for part in layout.taken)]).tolist()
    for number in np.unique(file_of).tolist():
        mine = file_of == number
        begin, end = int(layout.offsets[mine].min()), int(ends[mine].max())
        if (
            begin != position
        ):  # the file before has no room for the record that is first in this one
            _write_blank(target, position, begin - position)
        buffer = np.empty(end - begin, np.uint8)
        for part, (extra, starts), low, high in zip(
            layout.taken, marks, bounds, bounds[1:], strict=False
        ):
            inside = np.flatnonzero(mine[low:high])
            if not len(inside):
                continue
            # One part's records keep their order, so those of one file are neighbours.
            first, last = int(inside[0]), int(inside[-1]) + 1
            there = slice(low + first, low + last)
            placed = place_at(
                buffer, begin, part.data, part.rows[first:last], layout.sizes[there],
                layout.offsets[there], queue_ids[there], queue_offsets[there], topic, extra,
                starts[first : last + 1],
            )  # fmt: skip
            if placed < 0:
                raise PipelineError("a record would be written outside its slab: a bug")
        _write_at(target, begin, buffer.data)
        position = end


def _write_blank(target: Target, position: int, left: int) -> None:
    _write_at(target, position, memoryview(encode_blank(left)))


def _write_at(target: Target, position: int, data: memoryview) -> None:
    start = position - position % target.file_size
    path = Path(target.directory, LOG_DIRECTORY, file_name(start))
    descriptor = os.open(path, os.O_WRONLY)
    try:
        position -= start
        while data:
            written = os.pwrite(descriptor, data, position)
            data, position = data[written:], position + written
        os.fdatasync(
            descriptor
        )  # a task may run on another machine than the driver, which syncs last
    finally:
        os.close(descriptor)
