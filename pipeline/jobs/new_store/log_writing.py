"""What tasks do that write a new log: records copied to their places, and blanks where files end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import PipelineError
from pipeline.jobs.new_store.log_layout import LogLayout, RecordChange
from pipeline.jobs.new_store.log_slices import (
    LogSlice,
    Longs,
    ServedRecords,
    SliceRecords,
    read_slice,
)
from pipeline.jobs.new_store.new_queues import SourceQueue
from storage.format.record import encode_blank
from storage.kernels.columns import QUEUE_OFFSET, ByteArray
from storage.kernels.placing import place_at
from storage.stopped.files import write_log
from storage.view.queues.record_queues import QueueKey

Watched = Mapping[SourceQueue, Sequence[int]]
Moved = dict[tuple[SourceQueue, int], int]


@dataclass(frozen=True)
class SliceTarget:
    """Where a slice's records go in one new store: its log, the first byte, the next queue offsets."""

    directory: str
    file_size: int
    begin: int
    next_offsets: Mapping[QueueKey, int]


def write_slice(
    item: tuple[LogSlice, dict[int, SliceTarget]],
    *,
    selection: ServedRecords,
    change: RecordChange,
    watched: Watched,
    counter: Any,
) -> dict[int, Moved]:
    """Write a slice's records to all its targets; return where watched places are now, by output."""
    log_slice, targets = item
    chosen = read_slice(log_slice, selection)
    moved = {
        output: _write_output(chosen.outputs[output], target, change, watched)
        for output, target in targets.items()
    }
    counter.add(log_slice.cost)
    return moved


def _write_output(
    taken: Sequence[SliceRecords],
    target: SliceTarget,
    change: RecordChange,
    watched: Watched,
) -> Moved:
    layout = LogLayout(taken, change, target.begin, target.file_size)
    names = {key: number for number, key in enumerate(target.next_offsets)}
    numbers = np.concatenate([_numbers(part, names, change) for part in taken])
    nexts = np.array(list(target.next_offsets.values()), np.int64)
    queue_ids = np.array([queue_id for _, queue_id in target.next_offsets], np.int64)[numbers]
    queue_offsets = layout.queue_offsets(numbers, nexts)
    _write_log(layout, target, change, queue_ids, queue_offsets)
    return _find_again(taken, queue_offsets, watched)


def _numbers(part: SliceRecords, names: Mapping[QueueKey, int], change: RecordChange) -> Longs:
    used, places = np.unique(part.key_of, return_inverse=True)
    found = [names[change.key(part.keys[number])] for number in used.tolist()]
    return np.array(found, np.int64)[places]


def _find_again(taken: Sequence[SliceRecords], queue_offsets: Longs, watched: Watched) -> Moved:
    """Find, for each watched place, the new offset of the first record at or after it."""
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
                later = np.flatnonzero(olds >= wanted)
                if len(later):
                    offset = int(new[later[0]])
                    found[key, wanted] = min(found.get((key, wanted), offset), offset)
    return found


def _write_log(
    layout: LogLayout,
    target: SliceTarget,
    change: RecordChange,
    queue_ids: Longs,
    queue_offsets: Longs,
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
        # Otherwise the file before has no room for the record that is first in this one.
        if begin != position:
            _write_at(target, position, encode_blank(begin - position))
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
                raise PipelineError("a record would be written outside its slice: a bug")
        _write_at(target, begin, buffer)
        position = end


def _write_at(target: SliceTarget, commit_offset: int, data: bytes | ByteArray) -> None:
    write_log(Path(target.directory), commit_offset, data, target.file_size)
