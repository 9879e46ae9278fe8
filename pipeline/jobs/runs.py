"""What tasks over pieces of a log return to the driver: which queue offsets each piece held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.jobs.work import walk_piece
from storage.view.live_topics import LiveTopics
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange, RecordRun
from storage.view.pieces import LogPiece
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import QueueRun, runs_of
from storage.view.queues.units import UnitBuilder, as_units

Units = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
"""Units in the order of the log, and the queue offset of each as its record says."""


@dataclass
class PieceResult:
    """One piece: how many records it has, its queue runs, and where it is damaged."""

    records: int = 0
    runs: list[QueueRun] = field(default_factory=list)
    damage: list[DamagedRange] = field(default_factory=list)


class PieceUnits:
    """The units of one piece by queue, built as dispatch builds them."""

    def __init__(self) -> None:
        self._builder = UnitBuilder(RANGE_ROWS_MAX)
        self._parts: dict[QueueKey, list[tuple[bytes, npt.NDArray[np.int64]]]] = {}

    def take(self, records: RecordRun) -> None:
        """Add the units of a run of records."""
        for topic, queue_id, units, queue_offsets in self._builder.build(
            records.data, records.rows, len(records.rows), records.data_offset
        ):
            parts = self._parts.setdefault((topic, queue_id), [])
            parts.append((units.tobytes(), queue_offsets.copy()))

    def joined(self, topics: LiveTopics) -> Iterator[tuple[QueueKey, Units]]:
        """Yield each queue that has units of records that count."""
        for key, parts in self._parts.items():
            if not topics.has_queue(*key):
                continue
            # Not np.concatenate: it would turn the big-endian fields into native ones.
            units = as_units(b"".join(part for part, _ in parts))
            offsets = np.concatenate([part for _, part in parts])
            since = topics.since(key[0])
            if since:
                alive = units["offset"] >= since
                units, offsets = units[alive], offsets[alive]
            if len(units):
                yield key, (units, offsets)


def units_of_piece(
    piece: LogPiece,
    result: PieceResult,
    *,
    topics: LiveTopics,
    take: Callable[[RecordRun], None] | None = None,
) -> dict[QueueKey, Units]:
    """Return all units of a piece by queue, and note records, damage and runs in ``result``.

    ``topics`` says whose records count; ``take`` gets every run of records.
    """
    built = PieceUnits()
    for step in walk_piece(piece):
        if isinstance(step, DamagedRange):
            result.damage.append(step)
            continue
        result.records += len(step.rows)
        if take is not None:
            take(step)
        built.take(step)
    joined = dict(built.joined(topics))
    for key, (units, offsets) in joined.items():
        result.runs += runs_of(key, units, offsets)
    return joined


def by_queue(runs: Iterable[QueueRun]) -> dict[QueueKey, list[QueueRun]]:
    """Sort runs by queue, in the log's order."""
    found: dict[QueueKey, list[QueueRun]] = {}
    for run in runs:
        found.setdefault(run.key, []).append(run)
    for mine in found.values():
        mine.sort(key=lambda run: run.commit_offset)
    return found
