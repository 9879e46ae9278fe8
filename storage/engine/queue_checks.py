"""Whether queues may be appended to, by the table of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from storage.errors import InvalidMessage, QueueNotFound

if TYPE_CHECKING:
    from storage.log.batches import QueueKey
    from storage.tables.topic_table import TopicTable


def check_queues(topics: TopicTable, keys: Sequence[QueueKey]) -> None:
    """Raise TopicNotFound, QueueNotFound or InvalidMessage unless producers may send to each queue.

    A topic is looked up once for those of its queues that follow each other.
    """
    name: bytes | None = None
    queue_count = 0
    for topic_name, queue_id in keys:
        if topic_name is not name:
            name = topic_name
            topic = topics.get(name.decode(), to_send=True)
            if problem := topic.sending_problem:
                raise InvalidMessage("topic", f"{topic.name!r} {problem}")
            queue_count = topic.write_queue_count
        if queue_id >= queue_count:
            raise QueueNotFound(topic_name.decode(), queue_id, queue_count)


def check_topics(topics: TopicTable, keys: Sequence[QueueKey]) -> None:
    """Raise TopicNotFound unless each topic exists: what was decided is stored whatever it allows since."""
    for topic, _ in keys:
        topics.get(topic.decode())
