"""The tables of a new store: those of the stores that a job reads, joined."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipeline.jobs.new_store.new_queues import SourceQueue
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.view.config_tables import ConfigTables, TopicConfig

if TYPE_CHECKING:
    from pipeline.jobs.new_store.new_logs import NewLog

Offsets = dict[tuple[str, str], dict[int, int]]  # (topic, group) -> queue id -> queue offset


def join_topics(
    stores: Sequence[ConfigTables], chosen: Callable[[str], bool]
) -> dict[str, TopicConfig]:
    """Return the chosen topics of all stores; of one in several, the most queues, else the first's."""
    joined: dict[str, TopicConfig] = {}
    for store in stores:
        for name, topic in store.topics.items():
            if not chosen(name):
                continue
            known = joined.setdefault(name, topic)
            joined[name] = replace(
                known,
                read_queue_count=max(known.read_queue_count, topic.read_queue_count),
                write_queue_count=max(known.write_queue_count, topic.write_queue_count),
            )
    return joined


def new_topic(name: str, queue_count: int) -> TopicConfig:
    """Return a topic as a broker creates one."""
    return TopicConfig(name=name, read_queue_count=queue_count, write_queue_count=queue_count)


def join_groups(stores: Sequence[ConfigTables]) -> dict[str, Mapping[str, Any]]:
    """Return the groups of all stores; of one in several, the first's."""
    joined: dict[str, Mapping[str, Any]] = {}
    for store in stores:
        for name, fields in store.groups.items():
            joined.setdefault(name, fields)
    return joined


def watched_places(stores: Sequence[ConfigTables]) -> dict[SourceQueue, list[int]]:
    """Return where the consumers of all stores stand."""
    places: dict[SourceQueue, set[int]] = {}
    for number, store in enumerate(stores):
        for (topic, _), offsets in store.offsets.items():
            for queue_id, offset in offsets.items():
                places.setdefault(SourceQueue(number, topic, queue_id), set()).add(offset)
    return {queue: sorted(offsets) for queue, offsets in places.items()}


def carry_offsets(
    stores: Sequence[ConfigTables], written: NewLog, chosen: Callable[[str], bool]
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
    store: ConfigTables, source: SourceQueue, group: str, written: NewLog, *, kept: bool
) -> int | None:
    """Return the new place of a group in one old queue, None after the last record."""
    old = store.offsets.get((source.topic, group), {}).get(source.queue_id)
    if kept and old is not None:
        return old
    if old is None:
        return written.queues.queues[source.key].begin
    return written.moved.get((source, old))
