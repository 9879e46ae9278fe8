"""The JSON tables and settings of ``config/``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.errors import QueueNotFound
from storage.findings import NOTE, WARNING, Finding
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.tables.table_files import OFFSETS_FILE, TOPICS_FILE
from storage.view.layout import topics_without_entry
from storage.view.settings import load_settings
from storage.view.table_damage import damaged_tables

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore


def table_findings(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the tables: their copies, and what disagrees with the queues."""
    yield from damaged_tables(disk, store.paths)
    yield from _topics(store)
    if store.is_settled:  # a group may be ahead of what is looked at
        yield from _offsets(store)


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
