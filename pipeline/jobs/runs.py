"""What tasks over pieces of a log tell the driver: which queue offsets each piece held."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.files.walk import Hole, walk
from pipeline.jobs.units import QueueUnits, UnitMaker
from pipeline.source.plan import LogPiece, QueueKey
from storage.kernels.columns import ByteArray, Rows
from storage.view.queue_files import units_in

Units = tuple[npt.NDArray[Any], npt.NDArray[np.int64]]
"""Units in the order of the log, and the queue offset of each as its record says."""


class QueueRun(NamedTuple):
    """Queue offsets ``[begin, end)`` of one queue follow each other in the log."""

    key: QueueKey
    begin: int
    end: int
    commit_offset: int
    last_commit_offset: int


@dataclass
class PieceResult:
    """One piece: how many records it has, its queue runs, and where it is damaged."""

    records: int = 0
    runs: list[QueueRun] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)


def steps_of(piece: LogPiece) -> Iterator[tuple[ByteArray, Rows | Hole]]:
    """Walk a piece with every check: rows of intact records, or a hole."""
    data = piece.data()
    for step in walk(data, piece.file_start, piece.begin, piece.end):
        yield data, step if isinstance(step, Hole) else step.rows


def units_of_piece(
    piece: LogPiece,
    result: PieceResult,
    *,
    deleted: Mapping[str, int] | None = None,
    also: Callable[[ByteArray, Rows, int], None] | None = None,
) -> dict[QueueKey, Units]:
    """Return all units of a piece by queue, and note records, holes and runs in ``result``.

    ``deleted`` tells from which commit offset on a topic's records count; ``also`` hears of every run
    of records, with the commit offset of the array's first byte.
    """
    maker = UnitMaker()
    parts: dict[QueueKey, list[QueueUnits]] = {}
    for data, step in steps_of(piece):
        if isinstance(step, Hole):
            result.holes.append(step)
            continue
        result.records += len(step)
        if also is not None:
            also(data, step, piece.file_start)
        for made in maker.make(data, piece.file_start, step):
            parts.setdefault(made.key, []).append(made)
    joined = {}
    for key, group in parts.items():
        # Not np.concatenate: it would turn the big-endian fields into native ones.
        units = units_in(b"".join(made.units.tobytes() for made in group))
        offsets = np.concatenate([made.queue_offsets for made in group])
        if deleted and key[0] in deleted:
            alive = units["offset"] >= deleted[key[0]]
            units, offsets = units[alive], offsets[alive]
        if len(units):
            joined[key] = units, offsets
            result.runs += runs_of(key, units, offsets)
    return joined


def runs_of(
    key: QueueKey, units: npt.NDArray[Any], offsets: npt.NDArray[np.int64]
) -> Iterator[QueueRun]:
    """Yield the runs of one queue in a piece."""
    for begin, end in consecutive(offsets):
        first = int(offsets[begin])
        places = int(units["offset"][begin]), int(units["offset"][end - 1])
        yield QueueRun(key, first, first + end - begin, *places)


def consecutive(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of places whose numbers go up by one."""
    breaks = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(offsets)], strict=True)


def by_queue(runs: Iterable[QueueRun]) -> dict[QueueKey, list[QueueRun]]:
    """Sort runs by queue, in the log's order."""
    found: dict[QueueKey, list[QueueRun]] = {}
    for run in runs:
        found.setdefault(run.key, []).append(run)
    for mine in found.values():
        mine.sort(key=lambda run: run.commit_offset)
    return found
