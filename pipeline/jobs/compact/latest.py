"""Which records are the latest of their topic and key, found without moving a body.

Every piece of the log first keeps the latest of each key in itself. Only these keys, with the place of
their record, are dealt out by key and compared; what comes back, piece by piece, are the places of the
winners, kept in files until the piece is read again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.jobs.new_store.log_slices import Longs, Rows, ServedRecords, group
from pipeline.jobs.work import in_tasks, task_failures_raised, walk_piece
from storage.arrow.record_columns import RecordColumns
from storage.kernels.columns import (
    BODY_LENGTH,
    COMMIT_OFFSET,
    FEATURES,
    HAS_KEYS,
    KEYS_LENGTH,
    KEYS_POSITION,
    ByteArray,
)
from storage.kernels.same_keys import group_by_key
from storage.view.log.walk import DamagedRange
from storage.view.pieces import LogPiece
from storage.view.queues.record_queues import QueueKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_BYTES: Final = 256 << 20  # of log, whose keys are compared in one task
TALLY: Final = -1
SCHEMA: Final = pa.schema([("topic", pa.binary()), ("key", pa.binary()), ("place", pa.int64())])


@dataclass(frozen=True)
class Latest(ServedRecords):
    """Chooses the winners among the topics that are compacted, and all of the others.

    ``directory`` holds the winners' commit offsets, a file for each piece.
    """

    directory: str = ""
    compacted: frozenset[str] = frozenset()
    keyless: bool = True

    def kept(
        self,
        piece: LogPiece,
        data: ByteArray,  # noqa: ARG002
        rows: Rows,
        keys: Sequence[QueueKey],
        key_of: Longs,
    ) -> npt.NDArray[np.bool_]:
        """Return which records are the latest of their key, or have none and are kept for that."""
        compacted = np.array([topic in self.compacted for topic, _ in keys])[key_of]
        keyed = (rows[:, FEATURES] & HAS_KEYS) != 0
        winners = _winners_of(self.directory, piece.begin)
        wins: npt.NDArray[np.bool_] = np.isin(
            rows[:, COMMIT_OFFSET], winners, assume_unique=True, kind="sort"
        )
        return ~compacted | (keyed & wins) | (~keyed & self.keyless)


@lru_cache(maxsize=4)
def _winners_of(directory: str, begin: int) -> Longs:
    path = Path(directory, f"{begin}.npy")
    return np.load(path) if path.exists() else np.empty(0, np.int64)


def find_latest(
    spark: SparkSession,
    pieces: Sequence[LogPiece],
    directory: Path,
    compacted: frozenset[str],
    *,
    keep_tombstones: bool,
    counter: Any,
) -> tuple[int, int]:
    """Write the winners of each piece to ``directory``, for :class:`Latest` to choose by.

    Returns how many distinct keys there are, and how many of them end in a tombstone.

    Raises TaskFailed.
    """
    if not pieces:
        return 0, 0
    slots = max(1, spark.sparkContext.defaultParallelism)
    buckets = max(slots, -(-sum(piece.cost for piece in pieces) // BUCKET_BYTES))
    begins = np.array([piece.begin for piece in pieces], np.int64)
    look = partial(_candidates, compacted=compacted, buckets=buckets, counter=counter)
    decide = partial(_decide, begins=begins, keep_tombstones=keep_tombstones)
    tasks = in_tasks(spark, pieces)
    with task_failures_raised():
        saved: list[tuple[int, int]] = (
            spark.sparkContext.parallelize(tasks, len(tasks))
            .flatMap(look)
            .partitionBy(buckets, _same)
            .mapPartitions(decide)
            .groupByKey(buckets)
            .map(partial(_save, directory=str(directory)))
            .collect()
        )
    return sum(keys for keys, _ in saved), sum(dead for _, dead in saved)


def _same(bucket: int) -> int:
    return bucket


def _candidates(
    pieces: Sequence[LogPiece], *, compacted: frozenset[str], buckets: int, counter: Any
) -> Iterator[tuple[int, bytes]]:
    for piece in pieces:
        yield from _candidates_of(piece, compacted, buckets)
        counter.add(piece.cost)


def _candidates_of(
    piece: LogPiece, compacted: frozenset[str], buckets: int
) -> Iterator[tuple[int, bytes]]:
    """Return the latest record of each key in one piece, as Arrow tables by bucket."""
    data = piece.data()
    chosen = ServedRecords(dict.fromkeys(compacted, 0))
    parts = []
    for step in walk_piece(piece, data):
        if isinstance(step, DamagedRange):
            continue
        keys, key_of = group(data, step.rows)
        outputs = chosen.outputs_of(piece, data, step.rows, keys, key_of)
        mine = (outputs == 0) & ((step.rows[:, FEATURES] & HAS_KEYS) != 0)
        parts.append(step.rows[mine])
    if not parts:
        return
    rows = np.concatenate(parts)
    key_of, latest, hashes = np.empty((3, len(rows)), np.int64)
    count = int(group_by_key(data, rows, key_of, latest, hashes))
    rows, hashes = rows[latest[:count]], hashes[:count]
    batch = RecordColumns(data, rows, decompress_bodies=False)
    table = pa.table(
        {
            "topic": batch.topic().cast(pa.binary()),
            "key": batch._column(KEYS_POSITION, KEYS_LENGTH, pa.binary()),
            "place": 2 * rows[:, COMMIT_OFFSET] + (rows[:, BODY_LENGTH] == 0),
        },
        schema=SCHEMA,
    )
    bucket_of = hashes % buckets
    for bucket in np.unique(bucket_of).tolist():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as stream:
            stream.write_table(table.filter(pa.array(bucket_of == bucket)))
        yield bucket, sink.getvalue().to_pybytes()


def _decide(
    items: Iterable[tuple[int, bytes]],
    *,
    begins: Longs,
    keep_tombstones: bool,
) -> Iterator[tuple[int, bytes]]:
    """Compare the candidates of one bucket; yield the places of the winners by piece.

    Counts come along, as of a piece that there is not.
    """
    tables = [pa.ipc.open_stream(data).read_all() for _, data in items]
    if not tables:
        return
    joined = pa.concat_tables(tables).group_by(["topic", "key"]).aggregate([("place", "max")])
    places = pc.cast(joined["place_max"], pa.int64()).to_numpy()
    dead = places % 2 == 1
    yield TALLY, np.array([len(places), int(dead.sum())], np.int64).tobytes()
    offsets = np.sort(places // 2 if keep_tombstones else places[~dead] // 2)
    piece_of = np.searchsorted(begins, offsets, side="right") - 1
    for piece in np.unique(piece_of).tolist():
        yield int(begins[piece]), offsets[piece_of == piece].tobytes()


def _save(item: tuple[int, Iterable[bytes]], *, directory: str) -> tuple[int, int]:
    """Keep the winners of one piece, and return the counts, which are of no piece."""
    begin, parts = item
    arrays = [np.frombuffer(part, np.int64) for part in parts]
    if begin == TALLY:
        keys, dead = np.sum(arrays, axis=0).tolist()
        return keys, dead
    path = Path(directory, f"{begin}.npy")
    partial_path = path.with_suffix(f".{uuid.uuid4().hex}.tmp")
    with partial_path.open("wb") as file:
        np.save(file, np.sort(np.concatenate(arrays)))
    partial_path.replace(path)
    return 0, 0
