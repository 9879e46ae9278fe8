"""The JSON tables and settings of ``config/``, and staged commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from storage import findings as kinds
from storage.errors import QueueNotFound
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.offline.staged import staged_findings
from storage.tables.table_files import OFFSETS_FILE, TOPICS_FILE
from storage.view.config_tables import has_topic_table, table_problems
from storage.view.layout import topics_without_entry
from storage.view.settings import damaged_settings, load_settings

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore
    from storage.view.layout import StorePaths

READ_TRIES: Final = 3  # of a table that a running store writes to


def table_findings(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the tables: their copies, and what disagrees with the queues."""
    yield from _copies(disk, store.paths)
    yield from _topics(store)
    if not store.is_in_use:  # a group may be ahead of what is looked at
        yield from _offsets(store)


def _copies(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    problems = table_problems(disk, paths.config)
    for _ in range(READ_TRIES if problems else 0):  # a running store may be writing it
        again = table_problems(disk, paths.config)
        problems = {name: again[name] for name in problems if name in again}
    for name, (problem, is_lost) in problems.items():
        yield Finding(
            severity=DAMAGE if is_lost else WARNING, kind=kinds.TABLE, file=f"config/{name}",
            message=problem,
        )  # fmt: skip
    damaged = damaged_settings(disk, paths)
    is_whole = load_settings(disk, paths).present
    for name, problem in damaged.items():
        yield Finding(
            severity=WARNING if is_whole else DAMAGE, kind=kinds.TABLE, file=f"config/{name}",
            message=f"is damaged: {problem}; the other of the two is used"
            if is_whole
            else f"is damaged: {problem}; the store gets another identity",
        )  # fmt: skip
    if not has_topic_table(disk, paths.config):
        yield Finding(
            severity=WARNING, kind=kinds.TABLE_MISSING, file="config/topics.json",
            message="is missing: topics are known by their queues alone",
        )  # fmt: skip


def _topics(store: OfflineStore) -> Iterator[Finding]:
    counts = topics_without_entry(store.filesystem, store.paths.consume_queue, store.reader.topics)
    # A broker has such topics for retries; in a store of ours our first start has made their entries.
    severity = WARNING if load_settings(store.filesystem, store.paths).present else NOTE
    for topic, queue_count in sorted(counts.items()):
        yield Finding(
            severity=severity, kind=kinds.TOPIC_ENTRY, file=f"config/{TOPICS_FILE}",
            message=f"topic {topic} has records and no entry; the next start makes one of"
            f" {queue_count} queues",
        )  # fmt: skip


def _offsets(store: OfflineStore) -> Iterator[Finding]:
    reader = store.reader

    def end_of(topic: str, queue_id: int) -> int | None:
        if topic not in reader.topics or topic.startswith(LIGHT_QUEUE_PREFIX):
            return None
        try:
            return reader.max_offset(topic, queue_id)
        except QueueNotFound:
            return None

    for each in reader.consumer_offsets.beyond(end_of):
        yield Finding(
            severity=WARNING, kind=kinds.GROUP_OFFSET, file=f"config/{OFFSETS_FILE}",
            message=f"group {each.group} is at {each.queue_offset} in queue {each.queue_id} of"
            f" {each.topic}, which ends at {each.end_offset}",
            begin=each.end_offset, end=each.queue_offset,
        )  # fmt: skip


def staged_commits(disk: FileSystem, paths: StorePaths) -> Iterator[Finding]:
    """Yield staged commits under way, and what of them and of their ledgers is damaged."""
    for severity, file, message in staged_findings(disk, paths.root):
        kind = kinds.STAGED_DAMAGE if severity == DAMAGE else kinds.STAGED_COMMIT
        yield Finding(severity=severity, kind=kind, file=file, message=message)
