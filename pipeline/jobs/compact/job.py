"""The job ``compact``: the latest message of each topic and key, as a new store or a Parquet table.

The key of a message is its property KEYS as it stands. A message without a body is a tombstone: it
ends its key, and goes itself unless it is to be kept.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pipeline.errors import InvalidOption
from pipeline.jobs.compact.latest import Latest, find_latest
from pipeline.jobs.compact.table import write_parquet
from pipeline.jobs.new_store.new_store import (
    INTERNAL_PREFIXES,
    NewStore,
    Sources,
    StoreJob,
    finish_store,
)
from pipeline.jobs.work import PIECE_BYTES
from storage.stopped.files import make_work_directory
from storage.view.log.walk import DamagedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYLESS: Final = ("keep", "drop")
FORMATS: Final = ("store", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactReport:
    """What a compaction did; ``store`` is None where the result is a table.

    ``keys`` are distinct pairs of topic and key, ``tombstones`` those that end in one.
    """

    target: str
    store: NewStore | None
    records: int
    keys: int
    tombstones: int
    log_bytes: int
    damage: tuple[DamagedRange, ...]
    seconds: float


def compact(
    spark: SparkSession,
    store: str | Path,
    target: str | Path,
    *,
    topics: Sequence[str] = (),
    keep_others: bool = False,
    keyless: str = "keep",
    keep_tombstones: bool = False,
    format: str = "store",  # noqa: A002  the word that Spark has for it
    log_file_size: int | None = None,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> CompactReport:
    """Write what is left of ``topics``, all that users have if none is named, to ``target``.

    The result is durable on return, and has its name only then. Records keep everything but their
    places: queues begin at 0, and each consumer goes on at the first message left that it has not
    had. ``keep_others`` takes the other topics along as they are. ``format="parquet"`` writes a
    directory of Parquet files with the columns of the table ``messages``. Raises InvalidOption and
    NotAStore.
    """
    began = perf_counter()
    _check("keyless", keyless, KEYLESS)
    _check("format", format, FORMATS)
    sources = Sources.open([store], log_file_size=log_file_size)
    sources.check_topics("topics", topics)
    known = sources.topics()
    internal = {topic for topic in known if topic.startswith(INTERNAL_PREFIXES)}
    compacted = frozenset(topics or known - internal)
    taken = known if keep_others else compacted
    with StoreJob.begin(
        spark, "compact", sources, target, taken.__contains__, piece_bytes=piece_bytes,
        show_progress=show_progress, passes=3 if format == "store" else 2,
    ) as job:  # fmt: skip
        winners = (
            job.work / f"winners-{uuid.uuid4().hex}"
        )  # tasks remember what they read by its name
        make_work_directory(winners)
        job.progress.step = "keys"
        keys, tombstones = find_latest(
            spark, [piece for each in job.slices for _, pieces in each.parts for piece in pieces],
            winners, compacted, keep_tombstones=keep_tombstones, counter=job.progress.counter,
        )  # fmt: skip
        selection = Latest(dict.fromkeys(taken, 0), str(winners), compacted, keyless == "keep")
        made: NewStore | None = None
        if format == "store":
            logs, damaged = job.write([job.work], selection, keep_offsets=False)
            made = finish_store(job.work, logs[0], sources, taken.__contains__).at(target)
            records, damage = made.records, [each for _, each in damaged]
        else:
            job.progress.step = "writing"
            records, damage = write_parquet(
                spark, job.slices, selection, job.work, counter=job.progress.counter
            )
        shutil.rmtree(winners)
    return CompactReport(
        target=str(target),
        store=made,
        records=records,
        keys=keys,
        tombstones=tombstones,
        log_bytes=job.cost,
        damage=tuple(damage),
        seconds=perf_counter() - began,
    )


def _check(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise InvalidOption(option, f"{value!r} is not one of {', '.join(allowed)}")
