"""At a start the JSON tables are made to agree with the queues that recovery has left.

The log says which topics there are and where their queues end; a table that says otherwise is repaired, and
that is reported.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreFull, StoreLocked
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.tables.table_files import TOPICS_FILE
from storage.tables.topics import QUEUE_COUNT_MAX
from storage.view.config_tables import has_topic_table
from storage.view.layout import needs_entry, topics_without_entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.filesystem import FileSystem
    from storage.queues.queue_table import QueueTable
    from storage.recovery.recover import Recovered
    from storage.tables.consumer_offsets import ConsumerOffsets, OffsetBeyond
    from storage.tables.topic_table import TopicTable
    from storage.view.layout import StorePaths

_LOG: Final = logging.getLogger(__name__)


def report(name: str, problem: str) -> None:
    """Say what was wrong with a file in ``config/``, if anything was."""
    if problem:
        _LOG.warning("config/%s: %s", name, problem)


def settle_topics(
    filesystem: FileSystem,
    paths: StorePaths,
    topics: TopicTable,
    recovered: Recovered,
    now_ms: Callable[[], int],
) -> None:
    """Repair the topic table, and make entries of topics that have queues and no entry.

    Durable on return, but where the disk is full.
    """
    topics.settle()
    with suppress(StoreFull):
        counts = topics_without_entry(filesystem, paths.consume_queue, topics)
        for name, queue_count in recovered.queue_counts.items():
            if queue_count and needs_entry(name, topics):
                counts[name] = max(queue_count, counts.get(name, 0))
        for name, queue_count in sorted(counts.items()):
            if queue_count <= QUEUE_COUNT_MAX:
                topics.create(name, queue_count=queue_count, attributes={}, now_ms=now_ms())
                report(
                    TOPICS_FILE,
                    f"topic {name} had records and no entry; it has one again, of {queue_count} queues",
                )
        topics.save(always=not has_topic_table(filesystem, paths.config))


def lower_offsets(
    offsets: ConsumerOffsets, topics: TopicTable, queues: QueueTable
) -> tuple[OffsetBeyond, ...]:
    """Set groups' offsets that lie after the end of their queue to that end; durable on return.

    Their group would miss what is stored there next, so nothing may be while the disk is too full for it: raises
    StoreFull. Where a reader keeps the offsets, they are returned: it has to be ordered to.
    """

    def end_of(topic: str, queue_id: int) -> int | None:
        if topic not in topics or topic.startswith(LIGHT_QUEUE_PREFIX):
            return None
        return queues.get(topic, queue_id).next_offset

    found = offsets.beyond(end_of)
    if not found:
        return ()
    for each in found:
        _LOG.warning(
            "group %s was at %d in queue %d of %s, which ends at %d; it goes on there",
            each.group, each.queue_offset, each.queue_id, each.topic, each.end_offset,
        )  # fmt: skip
    try:
        offsets.lower(found)
        offsets.close()
    except StoreLocked:
        return tuple(found)
    return ()
