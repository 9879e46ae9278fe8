"""The configuration of stores: read from those that a job reads, joined, and written to a new one.

Documents are a broker's: topics, consumer offsets, subscription groups, delay offsets. Besides them
``penstock.json`` says with which sizes the files were made, and the checkpoint that all is durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.jobs.new_store.new_queues import SourceQueue
from storage.format import checkpoint
from storage.format.checkpoint import BrokerFields, IndexerSlot, WriterSlot
from storage.format.config_json import decode_config, encode_config, integer_keyed
from storage.format.consume_entry import UNIT_SIZE
from storage.format.index import HEADER_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.view.file_sizes import FileSizes
from storage.view.layout import SETTINGS_FILE
from storage.view.settings import StoreSettings, encode_settings
from storage.view.store_view import StoreView

if TYPE_CHECKING:
    from pipeline.jobs.new_store.new_logs import NewLog

TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
OFFSETS: Final = ("consumerOffset.json", "lmqConsumerOffset.json")
DELAYS: Final = "delayOffset.json"
SEPARATOR: Final = "@"
LOG_PAGE: Final = 4096
Offsets = dict[tuple[str, str], dict[int, int]]  # (topic, group) -> queue id -> queue offset


def sizes_for(store: StoreView) -> FileSizes:
    """Return the sizes for files like those of a store: whole pages of log, whole units."""
    sizes = store.sizes
    pages = -(-sizes.commit_log_file_size // LOG_PAGE)
    return sizes._replace(commit_log_file_size=pages * LOG_PAGE)


@dataclass(frozen=True)
class StoreConfigs:
    """What the documents of one store say. What cannot be read counts as absent."""

    topics: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    delays: Mapping[int, int] = field(default_factory=dict)
    light: bool = False  # offsets stand in a broker's file for light queues

    @classmethod
    def of(cls, store: StoreView) -> StoreConfigs:
        """Read the documents of a store, or their ``.bak``."""
        light, document = False, _read(store, OFFSETS[0])
        if not document:
            document = _read(store, OFFSETS[1])
            light = bool(document)
        offsets: Offsets = {}
        for key, table in _table(document, "offsetTable").items():
            topic, _, group = str(key).rpartition(SEPARATOR)
            offsets[topic, group] = integer_keyed(table)
        return cls(
            topics=_table(_read(store, TOPICS), "topicConfigTable"),
            groups=_table(_read(store, GROUPS), "subscriptionGroupTable"),
            offsets=offsets,
            delays=integer_keyed(_table(_read(store, DELAYS), "offsetTable")),
            light=light,
        )


def _read(store: StoreView, name: str) -> dict[str, Any]:
    for candidate in (name, f"{name}.bak"):
        try:
            document = decode_config(store.filesystem.read_bytes(store.paths.config / candidate))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            continue
        if isinstance(document, dict):
            return document
    return {}


def _table(document: Mapping[str, Any], name: str) -> dict[Any, Any]:
    table = document.get(name)
    return dict(table) if isinstance(table, Mapping) else {}


def join_topics(
    stores: Sequence[StoreConfigs], chosen: Callable[[str], bool]
) -> dict[str, dict[str, Any]]:
    """Return the chosen topics of all stores; of one in several, the most queues, else the first's."""
    joined: dict[str, dict[str, Any]] = {}
    for store in stores:
        for name, fields in store.topics.items():
            if not chosen(name):
                continue
            known = joined.setdefault(name, dict(fields))
            for count in ("readQueueNums", "writeQueueNums"):
                known[count] = max(int(known.get(count, 16)), int(fields.get(count, 16)))
    return joined


def new_topic(name: str, queue_count: int) -> dict[str, Any]:
    """Return a topic as a broker creates one."""
    return {
        "attributes": {},
        "order": False,
        "perm": 6,
        "readQueueNums": queue_count,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": 0,
        "writeQueueNums": queue_count,
    }


def watched_places(stores: Sequence[StoreConfigs]) -> dict[SourceQueue, list[int]]:
    """Return where the consumers of all stores stand."""
    places: dict[SourceQueue, set[int]] = {}
    for number, store in enumerate(stores):
        for (topic, _), offsets in store.offsets.items():
            for queue_id, offset in offsets.items():
                places.setdefault(SourceQueue(number, topic, queue_id), set()).add(offset)
    return {queue: sorted(offsets) for queue, offsets in places.items()}


def carry_offsets(
    stores: Sequence[StoreConfigs], written: NewLog, chosen: Callable[[str], bool]
) -> tuple[Offsets, list[str]]:
    """Return where consumers stand in a new store, and a line for each place that was dropped.

    In a queue that kept its offsets they stay. In any other a group goes on at the first record that
    it has not had from any of the stores; of a store where it has no offset it has had nothing.
    """
    carried: Offsets = {}
    dropped: list[str] = []
    pairs = sorted({pair for store in stores for pair in store.offsets if chosen(pair[0])})
    for topic, group in pairs:
        queue_ids = {i for store in stores for i in store.offsets.get((topic, group), {})}
        for queue_id in sorted(queue_ids):
            where = f"{group} in queue {queue_id} of {topic}"
            if topic.startswith(LIGHT_QUEUE_PREFIX):
                known = [store.offsets[topic, group][queue_id] for store in stores
                         if queue_id in store.offsets.get((topic, group), {})]  # fmt: skip
                carried.setdefault((topic, group), {})[queue_id] = min(known)
                continue
            queue = written.queues.queues.get((topic, queue_id))
            if queue is None:
                dropped.append(f"{where}: the queue has no messages")
                continue
            found = [
                _new_place(stores[source.store], source, group, written, kept=queue.kept)
                for source in sorted(queue.sources)
            ]
            ends = [queue.end if place is None else place for place in found]
            carried.setdefault((topic, group), {})[queue_id] = min(ends)
    return carried, dropped


def _new_place(
    store: StoreConfigs, source: SourceQueue, group: str, written: NewLog, *, kept: bool
) -> int | None:
    """Return the new place of a group in one old queue, None after the last record."""
    old = store.offsets.get((source.topic, group), {}).get(source.queue_id)
    if kept and old is not None:
        return old
    if old is None:
        return written.queues.queues[source.key].begin
    return written.moved.get((source, old))


def write_configs(
    root: Path,
    *,
    sizes: FileSizes,
    store_id: bytes,
    topics: Mapping[str, Mapping[str, Any]],
    groups: Mapping[str, Mapping[str, Any]],
    offsets: Offsets,
    delays: Mapping[int, int],
    light: bool,
) -> None:
    """Write the documents of a new store; nothing is synced."""
    directory = root / "config"
    directory.mkdir(parents=True, exist_ok=True)
    version = {"counter": 1, "stateVersion": 0, "timestamp": time.time_ns() // 1_000_000}
    settings = StoreSettings(
        store_id=store_id,
        sizes={
            "commit_log_file_size": sizes.commit_log_file_size,
            "consume_queue_file_size": sizes.consume_queue_file_size,
            "index_slot_count": sizes.index_slot_count,
            "index_entry_count": sizes.index_entry_count,
        },
    )
    (directory / SETTINGS_FILE).write_bytes(encode_settings(settings, flush_mode="async"))
    table = {
        name: dict(sorted({**new_topic(name, 1), **fields}.items()))
        for name, fields in sorted(topics.items())
    }
    _write(directory / TOPICS, {"dataVersion": version, "topicConfigTable": table})
    if groups:
        document = {"dataVersion": version, "forbiddenTable": {}, "subscriptionGroupTable": groups}
        _write(directory / GROUPS, document)
    if offsets:
        by_group: dict[str, list[str]] = {}
        for topic, group in offsets:
            by_group.setdefault(group, []).append(topic)
        places = {f"{topic}{SEPARATOR}{group}": dict(sorted(table.items()))
                  for (topic, group), table in offsets.items()}  # fmt: skip
        document = {"dataVersion": version, "groupTopicMap": by_group, "offsetTable": places}
        _write(directory / OFFSETS[light], document)
    if delays:
        _write(directory / DELAYS, {"dataVersion": version, "offsetTable": dict(delays)})


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_bytes(encode_config(document))


def write_checkpoint(
    root: Path,
    *,
    store_id: bytes,
    end_offset: int,
    last_timestamp_ms: int,
    sizes: FileSizes,
) -> None:
    """Say that log, queues and index are durable to the end, as after an orderly stop."""
    store = StoreView(root)
    units = sum(
        queue.end - queue.files[0].start_offset // UNIT_SIZE
        for topic, queue_id, _ in store.queue_directories()
        if (queue := store.open_queue(topic, queue_id, 0, end_offset)).files
    )
    files = store.index_files()
    headers = [file.header() for file in files]
    full = [header for header in headers if header.next_entry >= sizes.index_entry_count]
    indexed_ms = full[-1].end_timestamp_ms if full else 0
    fields = BrokerFields(last_timestamp_ms, last_timestamp_ms, indexed_ms, 0, 0)
    page = bytearray(checkpoint.PAGE_SIZE)
    page[: checkpoint.BROKER_SIZE] = fields.encode()
    ours = checkpoint.writer_broker_fields(bytes(page))
    writer = WriterSlot(True, 1, store_id, end_offset, end_offset, units, ours, ours).encode()
    position = checkpoint.WRITER_SLOT_POSITIONS[0]
    page[position : position + len(writer)] = writer
    name, header = 0, bytes(HEADER_SIZE)
    if files:
        name, header = int(files[-1].name), files[-1].header_bytes()
    indexer = IndexerSlot(True, 1, store_id, end_offset, name, header).encode()
    position = checkpoint.INDEXER_SLOT_POSITIONS[0]
    page[position : position + len(indexer)] = indexer
    (root / "checkpoint").write_bytes(page)
