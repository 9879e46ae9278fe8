"""Topics with batch consume queues: one unit for several messages, in a directory of their own.

A broker keeps them below ``batchconsumequeue/`` and does not start when it finds a plain queue of
such a topic. We keep none, so a store that has them is not opened for writing, and a dump of one has
their records in no queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.errors import UnsupportedFormat
from storage.view.layout import StorePaths

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.tables.topic_table import TopicTable


def batch_topics(filesystem: FileSystem, paths: StorePaths, topics: TopicTable) -> frozenset[str]:
    """Return the topics that have such queues, or are to have them, in this store."""
    directory = paths.root / "batchconsumequeue"
    on_disk = {entry.name for entry in filesystem.list_directory(directory) if entry.is_directory}
    return frozenset(on_disk | {topic.name for topic in topics if topic.has_batch_queues})


def refuse_batch_topics(filesystem: FileSystem, paths: StorePaths, topics: TopicTable) -> None:
    """Raise UnsupportedFormat if there are any."""
    found = sorted(batch_topics(filesystem, paths, topics))
    if found:
        raise UnsupportedFormat(
            f"{paths.root}: topic {found[0]} has batch consume queues (queue.type BatchCQ), which"
            " only a broker can go on with; penstock dump reads the rest of the store"
        )
