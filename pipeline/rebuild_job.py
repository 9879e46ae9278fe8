"""The job ``rebuild``: consume queues made anew from the log alone, to a new directory.

No shuffle: where a unit stands follows from its record's queue offset, so each task writes the units
of its piece of the log straight to their places. The driver then looks at the runs of queue offsets
that tasks report, fills what no record filled, and syncs; the directory gets its name last.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from pipeline.errors import PipelineError
from pipeline.plan import LogPiece, QueueKey, StorePlan
from pipeline.runs import PieceResult, QueueRun, by_queue, consecutive, units_of_piece
from pipeline.store_files import UNIT_DTYPE, StoreFiles, list_files
from pipeline.walk import Hole
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.names import file_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECE_BYTES: Final = 64 << 20
BROKER_FILE_SIZE: Final = 300_000 * UNIT_SIZE
SIZE_MAX: Final = 0x7FFF_FFFE


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild did. ``gaps`` are queue offsets without a record, by queue."""

    target: str
    log_bytes: int
    records: int
    units: int
    queues: int
    holes: tuple[Hole, ...]
    gaps: tuple[tuple[QueueKey, int, int], ...]
    seconds: float


def rebuild(
    spark: SparkSession,
    store: str | Path,
    target: str | Path,
    *,
    consume_queue_file_size: int | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> RebuildReport:
    """Write the consume queues of ``store`` to the new directory ``target``; durable on return.

    The files are a broker's, byte for byte, from the first record on that the log still has. Their
    size is that of the store's own queue files unless given. Raises PipelineError if ``target``
    exists or there is no store.
    """
    began = perf_counter()
    files = StoreFiles.open(store)
    target = Path(target)
    if target.exists():
        raise PipelineError(f"{target} exists; rebuild writes to a new directory")
    size = consume_queue_file_size or _file_size(files)
    if size <= 0 or size % UNIT_SIZE:
        raise PipelineError(f"a consume queue file of {size} bytes does not hold whole units")
    work = target.with_name(f"{target.name}.partial")
    work.mkdir(parents=True)
    plan = StorePlan(files)
    low, high, _ = plan.bounds
    pieces = list(plan.log_pieces(low, high, piece_bytes, None))
    write = partial(_write_piece, target=str(work), file_size=size)
    tasks = spark.sparkContext.parallelize(pieces, max(1, len(pieces)))
    results: list[PieceResult] = tasks.map(write).collect()
    holes = [hole for result in results for hole in result.holes]
    runs = by_queue(results)
    _write_begun_again(pieces, runs, work, size)
    gaps = [gap for key, found in runs.items() for gap in _fill(work, key, found, holes, size)]
    _sync(work)
    work.rename(target)
    _sync_directory(target.parent)
    return RebuildReport(
        target=str(target),
        log_bytes=sum(piece.cost for piece in pieces),
        records=sum(result.records for result in results),
        units=sum(run.end - run.begin for found in runs.values() for run in found),
        queues=len(runs),
        holes=tuple(holes),
        gaps=tuple(gaps),
        seconds=perf_counter() - began,
    )


def _file_size(store: StoreFiles) -> int:
    sizes = Counter(
        Path(file.path).stat().st_size
        for _, _, directory in store.queue_directories()
        for file in list_files(directory)
    )
    return sizes.most_common(1)[0][0] if sizes else BROKER_FILE_SIZE


def _write_piece(
    piece: LogPiece,
    *,
    target: str,
    file_size: int,
    since: Mapping[QueueKey, int] | None = None,
) -> PieceResult:
    """Write a piece's units; with ``since`` only of those queues, from those commit offsets on."""
    result = PieceResult()
    for key, (units, offsets) in units_of_piece(piece, result).items():
        if since is not None:
            if key not in since:
                continue
            kept = units["offset"] >= since[key]
            units, offsets = units[kept], offsets[kept]
            if not len(units):
                continue
        for begin, end in consecutive(offsets):
            _write_units(Path(target), key, int(offsets[begin]), units[begin:end], file_size)
    return result


def _write_units(target: Path, key: QueueKey, first: int, units: Any, file_size: int) -> None:
    directory = target / key[0] / str(key[1])
    directory.mkdir(parents=True, exist_ok=True)
    data = memoryview(units.tobytes())
    position = first * UNIT_SIZE
    while data:
        start = position - position % file_size
        room = min(len(data), start + file_size - position)
        descriptor = os.open(directory / file_name(start), os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            os.ftruncate(descriptor, file_size)
            os.pwrite(descriptor, data[:room], position - start)
        finally:
            os.close(descriptor)
        data, position = data[room:], position + room


def _write_begun_again(
    pieces: list[LogPiece], runs: dict[QueueKey, list[QueueRun]], work: Path, file_size: int
) -> None:
    """Where a topic was deleted and made again, queue offsets repeat: the later records count."""
    since: dict[QueueKey, int] = {}
    for key, found in runs.items():
        for at in range(len(found) - 1, 0, -1):
            if found[at].begin < found[at - 1].end:
                since[key] = found[at].commit_offset
                runs[key] = found[at:]
                break
    if not since:
        return
    for topic, queue_id in since:
        for file in list_files(work / topic / str(queue_id)):
            Path(file.path).unlink()
    for piece in pieces:
        if piece.end > min(since.values()):
            _write_piece(piece, target=str(work), file_size=file_size, since=since)


def _fill(
    work: Path, key: QueueKey, runs: list[QueueRun], holes: list[Hole], file_size: int
) -> list[tuple[QueueKey, int, int]]:
    """Fill a queue's first file up to its first unit, and gaps with units that point at the damage."""
    first = runs[0].begin
    begin = first - first % (file_size // UNIT_SIZE)
    if first > begin:
        units = np.zeros(first - begin, UNIT_DTYPE)
        units["size"] = PREFILL_SIZE
        _write_units(work, key, begin, units, file_size)
    gaps = []
    for before, after in pairwise(runs):
        missing = after.begin - before.end
        if missing <= 0:
            continue
        gaps.append((key, before.end, after.begin))
        between = [h for h in holes if before.commit_offset < h.begin < after.commit_offset]
        if between:
            units = np.zeros(missing, UNIT_DTYPE)
            units["offset"] = between[-1].begin
            units["size"] = min(between[-1].end - between[-1].begin, SIZE_MAX)
            _write_units(work, key, before.end, units, file_size)
    return gaps


def _sync(directory: Path) -> None:
    for root, _, names in os.walk(directory):
        for name in names:
            descriptor = os.open(Path(root, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        _sync_directory(Path(root))


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
