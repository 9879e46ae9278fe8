# Written by make client from penstock/_async: change it there.
"""Topics: create, list, describe, change, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock import wire
from penstock._sync.connection import Connection
from penstock.calls.call import Call, nothing
from penstock.calls.topics import description_of, stored_queues_of, topic_of, topics_of
from penstock.requests import build
from penstock.retry import Repeat
from penstock.v1 import reader_pb2, writer_pb2
from penstock.values import StoredQueue, Topic, TopicDescription


class Topics(Connection):
    """Topics over a connection."""

    def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """Create a topic; raises TopicExists if there is one of that name."""
        request = build(
            writer_pb2.CreateTopicRequest,
            name=name,
            queue_count=queues,
            attributes=dict(attributes or {}),
        )
        call = Call(wire.CREATE_TOPIC, request, topic_of, repeat=Repeat.NEVER)
        return self.run(call, timeout_s=timeout_s)

    def create_topics(
        self,
        names: Iterable[str],
        *,
        queues: int = 8,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> list[Topic]:
        """Create topics that are alike, all or none; raises TopicExists if there is one of the names.

        A thousand cost about as much as one.
        """
        same = {"queue_count": queues, "attributes": dict(attributes or {})}
        request = build(
            writer_pb2.CreateTopicsRequest, topics=[{"name": name, **same} for name in names]
        )
        call = Call(wire.CREATE_TOPICS, request, topics_of, repeat=Repeat.NEVER)
        return self.run(call, timeout_s=timeout_s)

    def topics(self, *, timeout_s: float | None = None) -> list[Topic]:
        """Return all topics by name."""
        call = Call(wire.LIST_TOPICS, writer_pb2.ListTopicsRequest(), topics_of)
        return self.run(call, timeout_s=timeout_s)

    def describe_topic(self, name: str, *, timeout_s: float | None = None) -> TopicDescription:
        """Return a topic and the offsets of its queues."""
        request = build(writer_pb2.DescribeTopicRequest, name=name)
        call = Call(wire.DESCRIBE_TOPIC, request, description_of)
        return self.run(call, timeout_s=timeout_s)

    def stored_queues(
        self, topics: Iterable[str] = (), *, timeout_s: float | None = None
    ) -> list[StoredQueue]:
        """Return the queues that have or had a message, by topic and queue id: of all topics, or of those given.

        The reader answers it, with what consumers can see. Topics that do not exist are left out.
        """
        request = build(reader_pb2.ListQueuesRequest, topics=list(topics))
        call = Call(wire.LIST_QUEUES, request, stored_queues_of)
        return self.run(call, timeout_s=timeout_s)

    def update_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        force: bool = False,
        timeout_s: float | None = None,
    ) -> Topic:
        """Change the given settings of a topic and return it; ``queues`` sets both counts.

        Raises FailedPrecondition if read queues would go that are written to or that a group has not read to
        the end, unless ``force`` is set; the message names group, count and queue.
        """
        request = build(
            writer_pb2.UpdateTopicRequest,
            name=name,
            queue_count=queues,
            read_queue_count=read_queues,
            write_queue_count=write_queues,
            perm=perm,
            attributes=dict(attributes or {}),
            force=force,
        )
        call = Call(wire.UPDATE_TOPIC, request, topic_of)
        topic = self.run(call, timeout_s=timeout_s)
        self._queue_counts.forget(name)
        return topic

    def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic; its records stay in the commit log until that is cut."""
        request = build(writer_pb2.DeleteTopicRequest, name=name)
        call = Call(wire.DELETE_TOPIC, request, nothing, repeat=Repeat.NEVER)
        self.run(call, timeout_s=timeout_s)
        self._queue_counts.forget(name)

    def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic take writes; asked for now and then."""
        count = self._queue_counts.known(topic)
        if count is None:
            described = self.describe_topic(topic)
            count = self._queue_counts.learn(topic, described.topic.write_queue_count)
        return count

    def forget_queue_count(self, topic: str) -> None:
        """Ask for a topic's queues the next time: one that was to take a message is not there any more."""
        self._queue_counts.forget(topic)
