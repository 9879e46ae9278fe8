"""The most frequent keys counted exactly: every key is dealt out once for each piece that has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipeline.jobs.buckets import by_bucket, join_buckets
from pipeline.jobs.profile.counts import single_keys
from pipeline.jobs.work import in_tasks, task_failures_raised, walk_piece
from pipeline.source.decode import RecordColumns
from storage.kernels.columns import KEYS_LENGTH, KEYS_POSITION
from storage.kernels.same_keys import group_by_key
from storage.view.log.walk import DamagedRange
from storage.view.pieces import LogPiece

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET_BYTES: Final = 256 << 20  # of log, whose keys are added up in one task
SCHEMA: Final = pa.schema([("topic", pa.binary()), ("key", pa.binary()), ("times", pa.int64())])


class HotKey(NamedTuple):
    """A key of a topic and how many messages have it."""

    topic: str
    key: str
    messages: int


def count_keys(
    spark: SparkSession, pieces: Sequence[LogPiece], top: int, counter: Any
) -> tuple[list[HotKey], int]:
    """Return the ``top`` most frequent keys, and how many pairs of topic and key there are.

    Raises TaskFailed.
    """
    if not pieces:
        return [], 0
    slots = max(1, spark.sparkContext.defaultParallelism)
    buckets = max(slots, -(-sum(piece.cost for piece in pieces) // BUCKET_BYTES))
    tasks = in_tasks(spark, pieces)
    with task_failures_raised():
        found: list[tuple[list[HotKey], int]] = (
            spark.sparkContext.parallelize(tasks, len(tasks))
            .flatMap(partial(_count, buckets=buckets, counter=counter))
            .partitionBy(buckets, int)
            .mapPartitions(partial(_add_up, top=top))
            .collect()
        )
    keys = [key for part, _ in found for key in part]
    keys.sort(key=lambda key: (-key.messages, key.topic, key.key))
    return keys[:top], sum(distinct for _, distinct in found)


def _count(
    pieces: Sequence[LogPiece], *, buckets: int, counter: Any
) -> Iterator[tuple[int, bytes]]:
    for piece in pieces:
        data = piece.data()
        steps = walk_piece(piece, data, checks=0)
        parts = [
            single_keys(data, step.rows) for step in steps if not isinstance(step, DamagedRange)
        ]
        counter.add(piece.cost)
        rows = np.concatenate(parts) if parts else np.empty((0, 0), np.int64)
        if not len(rows):
            continue
        key_of, last_row, hashes = np.empty((3, len(rows)), np.int64)
        distinct = int(group_by_key(data, rows, key_of, last_row, hashes))
        batch = RecordColumns(data, rows[last_row[:distinct]], decompress_bodies=False)
        table = pa.table(
            {
                "topic": batch.topic().cast(pa.binary()),
                "key": batch._bytes(
                    batch._longs(KEYS_POSITION), batch._longs(KEYS_LENGTH), pa.binary()
                ),
                "times": np.bincount(key_of, minlength=distinct),
            },
            schema=SCHEMA,
        )
        yield from by_bucket(table, hashes[:distinct] % buckets)


def _add_up(items: Iterable[tuple[int, bytes]], *, top: int) -> Iterator[tuple[list[HotKey], int]]:
    joined = join_buckets(items, ("times", "sum"))
    if joined is None:
        return
    hottest = joined.sort_by([("times_sum", "descending"), ("topic", "ascending")]).slice(0, top)
    yield (
        [
            HotKey(topic.decode(), key.decode(errors="replace"), times)
            for topic, key, times in zip(
                *(hottest[name].to_pylist() for name in ("topic", "key", "times_sum")), strict=True
            )
        ],
        len(joined),
    )
