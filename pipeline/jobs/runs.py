"""What tasks over pieces of a log return to the driver: which queue offsets each piece held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.jobs.work import walk_piece
from storage.view.live_topics import LiveTopics
from storage.view.log.walk import RANGE_ROWS_MAX, DamagedRange, RecordRun
from storage.view.pieces import LogPiece
from storage.view.queues.comparison import live_units
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
    """The units of one piece by queue, built as dispatch builds them; those of records that count."""

    def __init__(self, topics: LiveTopics) -> None:
        self._topics = topics
        self._builder = UnitBuilder(RANGE_ROWS_MAX)
        self._parts: dict[QueueKey, list[tuple[bytes, npt.NDArray[np.int64]]]] = {}

    def take(self, records: RecordRun) -> None:
        """Add the units of a run of records."""
        for key, units, queue_offsets in live_units(self._builder, records, self._topics):
            parts = self._parts.setdefault(key, [])
            parts.append((units.tobytes(), queue_offsets.copy()))

    def joined(self) -> Iterator[tuple[QueueKey, Units]]:
        """Yield the units of each queue."""
        for key, parts in self._parts.items():
            # Not np.concatenate: it would turn the big-endian fields into native ones.
            units = as_units(b"".join(part for part, _ in parts))
            yield key, (units, np.concatenate([part for _, part in parts]))


def units_of_piece(
    piece: LogPiece,
    result: PieceResult,
    *,
    topics: LiveTopics,
) -> dict[QueueKey, Units]:
    """Return all units of a piece by queue, and note records, damage and runs in ``result``.

    ``topics`` says whose records count.
    """
    built = PieceUnits(topics)
    for step in walk_piece(piece):
        if isinstance(step, DamagedRange):
            result.damage.append(step)
            continue
        result.records += len(step.rows)
        built.take(step)
    joined = dict(built.joined())
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
