"""What jobs that write stores share: source stores opened, new ones made whole after their logs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import InvalidOption, unknown_topic
from pipeline.jobs.new_directory import new_directory
from pipeline.jobs.new_store.joined_tables import (
    Offsets,
    carry_offsets,
    join_groups,
    join_topics,
    new_topic,
    watched_places,
)
from pipeline.jobs.new_store.log_layout import RecordChange
from pipeline.jobs.new_store.log_slices import LogSlice, ServedRecords, cut_slices
from pipeline.jobs.new_store.new_logs import NewLog, write_logs
from pipeline.jobs.progress import JobProgress, job_progress
from pipeline.jobs.rebuild.job import rebuild_stores
from pipeline.jobs.work import open_stores
from storage.clock import SystemClock
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import LIGHT_QUEUE_PREFIX, TIMER_TOPIC
from storage.stopped.checkpoint import write_checkpoint
from storage.stopped.config_tables import write_configuration
from storage.view.config_tables import ConfigTables, TopicConfig
from storage.view.file_sizes import FileSizes
from storage.view.layout import INDEX_DIRECTORY, QUEUE_DIRECTORY
from storage.view.log.walk import DamagedRange
from storage.view.queues.record_queues import QueueKey
from storage.view.store_plan import StorePlan
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MADE: Final = ".made"
LOG_PAGE: Final = 4096
SAME_RECORDS: Final = RecordChange()
INTERNAL_PREFIXES: Final = (
    SCHEDULE_TOPIC, "RMQ_SYS_TRANS_", TIMER_TOPIC, "rmq_sys_REVIVE_LOG_",
)  # fmt: skip
"""Topics whose queue offsets are named elsewhere: in bodies, in files, in other records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStore:
    """A store that a job wrote.

    ``renumbered`` are queues whose offsets are not the old ones, ``dropped_offsets`` a line for each
    place of a consumer that means nothing here.
    """

    path: str
    records: int
    log_bytes: int
    topics: int
    queues: int
    renumbered: tuple[QueueKey, ...]
    dropped_offsets: tuple[str, ...]

    def at(self, path: Path | str) -> NewStore:
        """Return the same under the name that it has got."""
        return replace(self, path=str(path))


@dataclass(frozen=True)
class Sources:
    """The stores that a job reads, looked at once."""

    plans: tuple[StorePlan, ...]
    configs: tuple[ConfigTables, ...]
    sizes: FileSizes

    @classmethod
    def open(cls, stores: Sequence[Path | str], *, log_file_size: int | None = None) -> Sources:
        """Open stores; new files get the sizes of the first one's.

        Raises NotAStore, and PipelineError where one is named twice.
        """
        files = open_stores(stores)
        sizes = files[0].sizes
        pages = -(-sizes.commit_log_file_size // LOG_PAGE)
        sizes = sizes._replace(commit_log_file_size=pages * LOG_PAGE)
        if log_file_size is not None:
            if log_file_size < LOG_PAGE or log_file_size % LOG_PAGE:
                raise InvalidOption(
                    "log_file_size", f"must be a multiple of {LOG_PAGE}, not {log_file_size}"
                )
            sizes = sizes._replace(commit_log_file_size=log_file_size)
        return cls(
            tuple(StorePlan(store) for store in files),
            tuple(store.config_tables() for store in files),
            sizes,
        )

    def topics(self) -> set[str]:
        """Return the topics that have a name in a table or a queue; light queues have neither."""
        return {
            topic
            for plan in self.plans
            for topic in plan.topics
            if not topic.startswith(LIGHT_QUEUE_PREFIX)
        }

    def check_topics(self, option: str, names: Sequence[str]) -> None:
        """Raise InvalidOption for a name that no store has."""
        known = self.topics()
        for name in names:
            if name not in known:
                raise InvalidOption(option, unknown_topic("the stores", name, known))


@dataclass(frozen=True)
class StoreJob:
    """A job that writes new stores below ``work``, from slices of its sources' logs."""

    spark: SparkSession
    sources: Sources
    work: Path
    slices: Sequence[LogSlice]
    cost: int
    progress: JobProgress

    @classmethod
    @contextmanager
    def begin(
        cls, spark: SparkSession, name: str, sources: Sources, target: str | Path,
        topics: Callable[[str], bool], *, piece_bytes: int, show_progress: bool, passes: int = 2,
    ) -> Iterator[StoreJob]:  # fmt: skip
        """Read records of ``topics``; at the end ``work`` becomes the new directory ``target``, durable."""
        with new_directory(target) as work:
            slices = cut_slices(spark, sources.plans, topics, piece_bytes)
            cost = sum(log_slice.cost for log_slice in slices)
            total = passes * cost
            with job_progress(spark, name, total_bytes=total, show=show_progress) as progress:
                yield cls(spark, sources, work, slices, cost, progress)

    def write(
        self, roots: Sequence[Path], selection: ServedRecords, change: RecordChange = SAME_RECORDS, *,
        keep_offsets: bool, carry: bool = True,
    ) -> tuple[list[NewLog], list[tuple[int, DamagedRange]]]:  # fmt: skip
        """Write the log, queues and index of each store; return the logs, and the damage that was left out.

        Nothing is synced. Without ``carry`` it is not looked where consumers go on.
        """
        sizes, progress = self.sources.sizes, self.progress
        logs, damaged = write_logs(
            self.spark, self.slices, selection, change, roots,
            file_size=sizes.commit_log_file_size, keep_offsets=keep_offsets,
            watched=watched_places(self.sources.configs) if carry else {}, progress=progress,
        )  # fmt: skip
        progress.step = "queues and index"
        size = sum(file.size for root in roots for file in StoreView(root).log.entries)
        progress.grow(size)
        rebuild_stores(
            self.spark, roots, self.work / MADE,
            consume_queue_file_size=sizes.consume_queue_file_size,
            index_slot_count=sizes.index_slot_count, index_entry_count=sizes.index_entry_count,
        )  # fmt: skip
        for root in roots:
            for name in (QUEUE_DIRECTORY, INDEX_DIRECTORY):
                (self.work / MADE / root.name / name).rename(root / name)
        shutil.rmtree(self.work / MADE)
        progress.advance(size)
        return logs, damaged


def finish_store(
    root: Path,
    written: NewLog,
    sources: Sources,
    chosen: Callable[[str], bool],
    *,
    topics: Mapping[str, TopicConfig] | None = None,
    carry: bool = True,
) -> NewStore:
    """Give a log with queues and index its configuration and checkpoint; nothing is synced.

    ``topics`` replaces the table of the chosen topics; without ``carry`` consumers start at the beginning.
    """
    queues = written.queues.queues
    table = dict(topics) if topics is not None else join_topics(sources.configs, chosen)
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    for topic, count in counts.items():
        table.setdefault(topic, new_topic(topic, count))
    offsets: Offsets = {}
    dropped: list[str] = []
    if carry:
        offsets, dropped = carry_offsets(sources.configs, written, chosen)
    tables = ConfigTables(
        topics=table,
        groups=join_groups(sources.configs) if carry else {},
        offsets=offsets,
        delays=_delays(sources.configs, written) if carry else {},
        light=any(store.light for store in sources.configs),
    )
    store_id = write_configuration(root, sources.sizes, tables, now_ms=SystemClock().now_ms())
    write_checkpoint(
        root,
        store_id=store_id,
        end_offset=written.size,
        last_timestamp_ms=written.last_timestamp_ms,
    )
    return NewStore(
        path=str(root),
        records=written.records,
        log_bytes=written.size,
        topics=len(table),
        queues=len(queues),
        renumbered=tuple(sorted(key for key, queue in queues.items() if not queue.kept)),
        dropped_offsets=tuple(dropped),
    )


def _delays(stores: Sequence[ConfigTables], written: NewLog) -> Mapping[int, int]:
    """Return how far delayed messages were delivered, where their queues are as they were."""
    sources = {
        source.store
        for (topic, _), queue in written.queues.queues.items()
        if topic == SCHEDULE_TOPIC and queue.kept
        for source in queue.sources
    }
    return stores[sources.pop()].delays if len(sources) == 1 else {}
