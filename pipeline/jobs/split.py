"""The job ``split``: one store becomes one new store for each topic, or for each group of topics.

One walk of the log serves all of them. Queues keep their offsets, so consumers keep their places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from pipeline.errors import InvalidOption
from pipeline.jobs.new_store.log_slices import ServedRecords
from pipeline.jobs.new_store.new_store import NewStore, Sources, StoreJob, finish_store
from pipeline.jobs.work import PIECE_BYTES
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.view.log.walk import DamagedRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REST: Final = "rest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReport:
    """What a split did; ``damage`` is the ranges that went into no store."""

    stores: tuple[NewStore, ...]
    log_bytes: int
    damage: tuple[DamagedRange, ...]
    seconds: float


def split(
    spark: SparkSession,
    store: str | Path,
    target: str | Path,
    *,
    topics: Sequence[str] = (),
    rest: bool = False,
    log_file_size: int | None = None,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> SplitReport:
    """Write new stores into the new directory ``target``, which has its name when all are durable.

    Each of ``topics`` is a group, ``"a,b"`` or ``"NAME=a,b"``, and makes one store, called after its
    first topic unless named; ``rest`` makes one more, called ``rest``, of all other topics. Without
    groups every topic that has messages makes one. Raises InvalidOption and NotAStore.
    """
    began = perf_counter()
    sources = Sources.open([store], log_file_size=log_file_size)
    groups = _groups(sources, topics, rest=rest)
    outputs = {topic: number for number, (_, names) in enumerate(groups) for topic in names}
    with StoreJob.begin(
        spark, "split", sources, target, outputs.__contains__,
        piece_bytes=piece_bytes, show_progress=show_progress,
    ) as job:  # fmt: skip
        roots = [job.work / name for name, _ in groups]
        logs, damaged = job.write(roots, ServedRecords(outputs), keep_offsets=True)
        made = [
            finish_store(
                root, log, sources, frozenset((*names, *log.light_queues)).__contains__
            ).at(Path(target) / name)
            for root, (name, names), log in zip(roots, groups, logs, strict=True)
        ]
    return SplitReport(
        stores=tuple(made),
        log_bytes=job.cost,
        damage=tuple(each for _, each in damaged),
        seconds=perf_counter() - began,
    )


def _groups(
    sources: Sources, topics: Sequence[str], *, rest: bool
) -> list[tuple[str, tuple[str, ...]]]:
    known = sources.topics()
    if not topics:
        if rest:
            raise InvalidOption("rest", "without 'topics' every topic gets a store of its own")
        filled = {
            topic
            for (topic, _), queue in sources.plans[0].queues.items()
            if queue.begin < queue.end and not topic.startswith(LIGHT_QUEUE_PREFIX)
        }
        return [(topic, (topic,)) for topic in sorted(filled)]
    groups: list[tuple[str, tuple[str, ...]]] = []
    taken: dict[str, str] = {}
    for text in topics:
        name, separator, listed = text.rpartition("=")
        members = tuple(member.strip() for member in listed.split(",") if member.strip())
        if not members or (separator and not name.strip()):
            raise InvalidOption("topics", f"{text!r} is not like 'a,b' or 'NAME=a,b'")
        sources.check_topics("topics", members)
        name = name.strip() or members[0]
        if "/" in name or name.startswith("."):
            raise InvalidOption("topics", f"a directory cannot be called {name!r}")
        for member in members:
            if member in taken:
                raise InvalidOption("topics", f"{member!r} is in {taken[member]!r} already")
            taken[member] = name
        groups.append((name, members))
    if rest:
        groups.append((REST, tuple(sorted(known - set(taken)))))
    names = [name for name, _ in groups]
    for name in names:
        if names.count(name) > 1:
            raise InvalidOption("topics", f"two stores would be called {name!r}; use 'NAME=a,b'")
    return groups
