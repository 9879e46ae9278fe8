"""Log slices: what one task of a job that writes stores reads, records of several logs put in order.

A slice is a range of each log. Of one store it is a piece; of several it is the same range of time in
each, so that slice after slice is in the order of store timestamps while each log keeps its own order.
Where a clock went back, a record counts with the latest time before it in its log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.jobs.work import PIECE_BYTES, run_each, walk_piece
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import COMMIT_OFFSET, STORE_TIMESTAMP, ByteArray
from storage.view.log.walk import DamagedRange
from storage.view.pieces import LogPiece, Target
from storage.view.queues.record_queues import QueueKey, is_queued, queue_of
from storage.view.store_plan import StorePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = npt.NDArray[np.int64]
Longs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LogSlice:
    """Pieces by store, in the order of the stores; each store's are in the order of its log."""

    parts: tuple[tuple[int, tuple[LogPiece, ...]], ...]

    @property
    def cost(self) -> int:
        """Bytes to read."""
        return sum(piece.cost for _, pieces in self.parts for piece in pieces)


@dataclass
class SliceRecords:
    """Records of one piece that go into one output; ``key_of`` numbers the queues in ``keys``."""

    store: int
    data: ByteArray
    rows: Rows
    keys: list[QueueKey]
    key_of: Longs


@dataclass
class SliceOutputs:
    """What a slice gives to each output, in the order of stores and logs, and what is damaged."""

    outputs: dict[int, list[SliceRecords]] = field(default_factory=dict)
    damage: list[tuple[int, DamagedRange]] = field(default_factory=list)


@dataclass(frozen=True)
class ServedRecords:
    """Chooses the records that queues serve; ``outputs`` says where topics go, others nowhere.

    Without ``outputs`` all go to output 0. Jobs selection fewer by overriding ``kept``.
    """

    outputs: dict[str, int] | None = None

    def outputs_of(
        self, piece: LogPiece, data: ByteArray, rows: Rows, keys: Sequence[QueueKey], key_of: Longs
    ) -> Longs:
        """Return the number of each row's output, -1 for a row that goes nowhere."""
        lows, highs, outputs = np.zeros((3, len(keys)), np.int64)
        ranges = ranges_of(piece)
        for number, key in enumerate(keys):
            output = 0 if self.outputs is None else self.outputs.get(key[0], -1)
            if output >= 0 and key in ranges:
                lows[number], highs[number] = ranges[key]
            outputs[number] = output
        offsets = rows[:, COMMIT_OFFSET]
        served = (offsets >= lows[key_of]) & (offsets < highs[key_of]) & is_queued(rows)
        found = np.where(served, outputs[key_of], -1)
        mine = np.flatnonzero(found >= 0)
        if len(mine):
            kept = self.kept(piece, data, rows[mine], keys, key_of[mine])
            found[mine[~kept]] = -1
        return found

    def kept(
        self,
        piece: LogPiece,  # noqa: ARG002  for jobs that selection
        data: ByteArray,  # noqa: ARG002
        rows: Rows,
        keys: Sequence[QueueKey],  # noqa: ARG002
        key_of: Longs,  # noqa: ARG002
    ) -> npt.NDArray[np.bool_]:
        """Return which of the records that are served are wanted."""
        return np.ones(len(rows), np.bool_)


def ranges_of(piece: LogPiece) -> dict[QueueKey, tuple[int, int]]:
    """Return the commit offsets between which each target queue of a piece has records."""
    return {
        (target.topic, target.queue_id): (target.begin, target.end)
        for target in piece.targets or ()
    }


def targets_of(plan: StorePlan, topics: Callable[[str], bool]) -> list[Target]:
    """Return every queue of the chosen topics that has records. Light queues come with theirs."""
    found = []
    for (topic, queue_id), queue in sorted(plan.queues.items()):
        if queue.begin < queue.end and topics(topic) and not topic.startswith(LIGHT_QUEUE_PREFIX):
            last, size = queue.place(queue.end - 1)
            found.append(Target(topic, queue_id, queue.place(queue.begin)[0], last + size))
    return found


def read_slice(log_slice: LogSlice, selection: ServedRecords) -> SliceOutputs:
    """Read a slice: the rows that go to each output. Damaged records go nowhere."""
    chosen = SliceOutputs()
    for store, pieces in log_slice.parts:
        for piece in pieces:
            data = piece.data()
            for step in walk_piece(piece, data):
                if isinstance(step, DamagedRange):
                    chosen.damage.append((store, step))
                    continue
                keys, key_of = group(data, step.rows)
                outputs = selection.outputs_of(piece, data, step.rows, keys, key_of)
                for output in np.unique(outputs[outputs >= 0]).tolist():
                    mine = outputs == output
                    chosen.outputs.setdefault(output, []).append(
                        SliceRecords(store, data, step.rows[mine], keys, key_of[mine])
                    )
    return chosen


def group(data: ByteArray, rows: Rows) -> tuple[list[QueueKey], Longs]:
    """Return the queues of the rows and the number of each row's."""
    key_of, first_row, sizes = np.empty((3, max(1, len(rows))), np.int64)
    count = int(group_by_queue(data, rows, len(rows), key_of, first_row, sizes))
    keys = [queue_of(data, rows[row]) for row in first_row[:count].tolist()]
    return keys, key_of[: len(rows)]


def time_order(taken: Sequence[SliceRecords]) -> Longs | None:
    """Return the order of the records of several stores by time; None if they lie in order."""
    if len({part.store for part in taken}) < 2:
        return None
    times = []
    for store in sorted({part.store for part in taken}):
        mine = [part.rows[:, STORE_TIMESTAMP] for part in taken if part.store == store]
        times.append(np.maximum.accumulate(np.concatenate(mine)))
    joined = np.concatenate(times)  # parts come store by store, so this is their order
    return np.argsort(joined, kind="stable").astype(np.int64, copy=False)


def cut_slices(
    spark: SparkSession,
    plans: Sequence[StorePlan],
    topics: Callable[[str], bool],
    piece_bytes: int = PIECE_BYTES,
) -> list[LogSlice]:
    """Cut the chosen topics' records of all stores into slices of about ``piece_bytes``."""
    logs = []
    for plan in plans:
        low, high, _ = plan.bounds
        logs.append(list(plan.log_pieces(low, high, piece_bytes, targets_of(plan, topics))))
    used = [(store, pieces) for store, pieces in enumerate(logs) if pieces]
    if len(used) < 2:
        return [LogSlice(((store, (piece,)),)) for store, pieces in used for piece in pieces]
    starts = {
        store: np.maximum.accumulate([_first_time(plans[store], piece) for piece in pieces])
        for store, pieces in used
    }
    cuts = _cut_times(used, starts, piece_bytes)
    return _cut_at(spark, used, starts, cuts)


def _first_time(plan: StorePlan, piece: LogPiece) -> int:
    """Return when a piece's first record was stored; 0 if there is damage in its place."""
    return max(plan.store.log.record_time_ms(piece.begin), 0)


def _cut_times(
    used: Sequence[tuple[int, list[LogPiece]]], starts: dict[int, Longs], piece_bytes: int
) -> list[int]:
    """Choose times between which about ``piece_bytes`` were stored in all stores together."""
    points = sorted(
        (int(time), piece.cost)
        for store, pieces in used
        for time, piece in zip(starts[store], pieces, strict=True)
    )
    cuts: list[int] = []
    gathered = 0
    for (_, cost), (following, _) in pairwise(points):
        gathered += cost
        if gathered >= piece_bytes and (not cuts or following > cuts[-1]):
            cuts.append(following)
            gathered = 0
    return cuts


def _cut_at(
    spark: SparkSession,
    used: Sequence[tuple[int, list[LogPiece]]],
    starts: dict[int, Longs],
    cuts: Sequence[int],
) -> list[LogSlice]:
    work: list[tuple[int, int, LogPiece, list[int]]] = []
    for store, pieces in used:
        ends = [*starts[store].tolist()[1:], 1 << 62]
        for number, (piece, begin, end) in enumerate(
            zip(pieces, starts[store].tolist(), ends, strict=True)
        ):
            work.append((store, number, piece, [cut for cut in cuts if begin < cut <= end]))
    searched = [item for item in work if item[3]]
    found: dict[tuple[int, int], list[int]] = {}
    if searched:
        found = dict(run_each(spark, searched, _find_cuts, cost=lambda item: item[2].cost))
    slices: list[dict[int, list[LogPiece]]] = [{} for _ in range(len(cuts) + 1)]
    for store, number, piece, inside in work:
        at = int(np.searchsorted(cuts, starts[store][number], side="right"))
        edges = [piece.begin, *found.get((store, number), []), piece.end]
        for index, (begin, end) in enumerate(pairwise(edges)):
            if begin < end:
                part = replace(piece, begin=begin, end=end)
                slices[at + index].setdefault(store, []).append(part)
        assert len(edges) == len(inside) + 2
    return [
        LogSlice(tuple((store, tuple(pieces)) for store, pieces in sorted(parts.items())))
        for parts in slices
        if parts
    ]


def _find_cuts(
    item: tuple[int, int, LogPiece, list[int]],
) -> tuple[tuple[int, int], list[int]]:
    """Find, for each time, the first record of a piece that was stored then or later."""
    store, number, piece, cuts = item
    data = piece.data()
    found: list[int] = []
    latest = 0
    for step in walk_piece(piece, data, checks=0):
        if isinstance(step, DamagedRange):
            continue
        times = np.maximum.accumulate(step.rows[:, STORE_TIMESTAMP])
        latest = max(latest, int(times[-1]))
        while len(found) < len(cuts) and latest >= cuts[len(found)]:
            row = int(np.searchsorted(times, cuts[len(found)]))
            found.append(int(step.rows[row, COMMIT_OFFSET]))
        if len(found) == len(cuts):
            break
    return (store, number), found + [piece.end] * (len(cuts) - len(found))
