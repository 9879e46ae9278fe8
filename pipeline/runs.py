"""What tasks over pieces of a log tell the driver: which queue offsets each piece held."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.plan import LogPiece, QueueKey
from pipeline.store_files import ByteArray, map_file, units_in
from pipeline.units import QueueUnits, UnitMaker
from pipeline.walk import Hole, Rows, walk


class QueueRun(NamedTuple):
    """Queue offsets ``[begin, end)`` of one queue follow each other in the log."""

    key: QueueKey
    begin: int
    end: int
    commit_offset: int


@dataclass
class PieceResult:
    """One piece: how many records and keys it has, its queue runs, and what is wrong with it."""

    records: int = 0
    keys: int = 0
    runs: list[QueueRun] = field(default_factory=list)
    holes: list[Hole] = field(default_factory=list)
    findings: list[dict[str, Any]] = field(default_factory=list)


def steps_of(piece: LogPiece) -> Iterator[tuple[ByteArray, Rows | Hole]]:
    """Walk a piece with every check: rows of intact records, or a hole."""
    data = map_file(piece.path, piece.begin - piece.file_start, piece.end - piece.file_start)
    for step in walk(data, piece.file_start, piece.begin, piece.end):
        yield data, step if isinstance(step, Hole) else step.rows


def units_of_piece(
    piece: LogPiece, result: PieceResult
) -> dict[QueueKey, tuple[npt.NDArray[Any], npt.NDArray[np.int64]]]:
    """Return all units of a piece by queue, and note records, holes and runs in ``result``."""
    maker = UnitMaker()
    parts: dict[QueueKey, list[QueueUnits]] = {}
    for data, step in steps_of(piece):
        if isinstance(step, Hole):
            result.holes.append(step)
            continue
        result.records += len(step)
        for made in maker.make(data, piece.file_start, step):
            parts.setdefault(made.key, []).append(made)
    joined = {}
    for key, group in parts.items():
        # Not np.concatenate: it would turn the big-endian fields into native ones.
        units = units_in(b"".join(made.units.tobytes() for made in group))
        offsets = np.concatenate([made.queue_offsets for made in group])
        joined[key] = units, offsets
        for begin, end in consecutive(offsets):
            first = int(offsets[begin])
            result.runs.append(
                QueueRun(key, first, first + end - begin, int(units["offset"][begin]))
            )
    return joined


def consecutive(offsets: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of places whose numbers go up by one."""
    breaks = (np.flatnonzero(np.diff(offsets) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(offsets)], strict=True)


def by_queue(results: list[PieceResult]) -> dict[QueueKey, list[QueueRun]]:
    """Sort the runs of all pieces by queue, in the log's order."""
    found: dict[QueueKey, list[QueueRun]] = {}
    for result in results:
        for run in result.runs:
            found.setdefault(run.key, []).append(run)
    for runs in found.values():
        runs.sort(key=lambda run: run.commit_offset)
    return found
