"""The job ``merge``: several stores become one new store.

Topics stand side by side. Records of all stores are in the order of their store timestamps, each
store's in the order of its log; so is every queue of a topic that several stores have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from pipeline.errors import InvalidOption
from pipeline.jobs.new_store.log_slices import ServedRecords
from pipeline.jobs.new_store.new_store import (
    INTERNAL_PREFIXES,
    NewStore,
    Sources,
    StoreJob,
    finish_store,
)
from pipeline.jobs.work import PIECE_BYTES
from storage.view.log.walk import DamagedRange
from storage.view.store_plan import StorePlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeReport:
    """What a merge did. ``damage`` is the ranges that were left out, with the store's path."""

    store: NewStore
    stores: tuple[str, ...]
    log_bytes: int
    damage: tuple[tuple[str, DamagedRange], ...]
    seconds: float


def merge(
    spark: SparkSession,
    stores: Sequence[str | Path],
    target: str | Path,
    *,
    without: Sequence[str] = (),
    log_file_size: int | None = None,
    piece_bytes: int = PIECE_BYTES,
    show_progress: bool = False,
) -> MergeReport:
    """Write all topics of ``stores``, but for those ``without``, to the new store ``target``.

    The store is durable on return, and has its name only then. A queue that one store alone has
    keeps its offsets; one of several stores is counted from 0, and each group goes on in it at
    the first message that it has not had. Raises InvalidOption and NotAStore.
    """
    began = perf_counter()
    if not stores:
        raise InvalidOption("stores", "name at least one store")
    sources = Sources.open(stores, log_file_size=log_file_size)
    sources.check_topics("without", without)

    def chosen(topic: str) -> bool:
        return topic not in without

    _refuse_shared_internals(sources.plans, without)
    with StoreJob.begin(
        spark,
        "merge",
        sources,
        target,
        chosen,
        piece_bytes=piece_bytes,
        show_progress=show_progress,
    ) as job:
        logs, damaged = job.write([job.work], ServedRecords(), keep_offsets=True)
        made = finish_store(job.work, logs[0], sources, chosen)
    return MergeReport(
        store=made.at(target),
        stores=tuple(map(str, stores)),
        log_bytes=job.cost,
        damage=tuple((str(stores[store]), each) for store, each in damaged),
        seconds=perf_counter() - began,
    )


def _refuse_shared_internals(plans: Sequence[StorePlan], without: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for number, plan in enumerate(plans):
        for (topic, queue_id), queue in plan.queues.items():
            if not topic.startswith(INTERNAL_PREFIXES) or topic in without:
                continue
            if queue.begin < queue.end and seen.setdefault(f"{topic}/{queue_id}", number) != number:
                raise InvalidOption(
                    "stores",
                    f"several have messages in {topic}, whose offsets are named outside of it and"
                    " would change; leave it out with 'without'",
                )
