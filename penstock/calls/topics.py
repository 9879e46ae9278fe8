"""Topics: create, list, describe, change, delete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.errors import TopicNotFound
from penstock.requests import build, each, value, value_of
from penstock.retry import Repeat
from penstock.v1 import reader_pb2, writer_pb2
from penstock.values import StoredQueue, Topic, TopicDescription
from storage.clock import Clock

KEPT_S: Final = 30.0


def describe_topic(name: str, *, timeout_s: float | None = None) -> Call[TopicDescription]:
    """Return a topic and the offsets of its queues."""
    request = build(writer_pb2.DescribeTopicRequest, name=name)
    return Call(wire.DESCRIBE_TOPIC, request, _description, timeout_s=timeout_s)


def topics(*, timeout_s: float | None = None) -> Call[list[Topic]]:
    """Return all topics by name."""
    request = writer_pb2.ListTopicsRequest()
    return Call(wire.LIST_TOPICS, request, each(Topic, "topics"), timeout_s=timeout_s)


def stored_queues(
    topics: Iterable[str] = (), *, timeout_s: float | None = None
) -> Call[list[StoredQueue]]:
    """Return the queues that have or had a message, by topic and queue id: of all topics, or of those given.

    The reader answers it, with what consumers can see. Topics that do not exist are left out.
    """
    request = build(reader_pb2.ListQueuesRequest, topics=list(topics))
    return Call(wire.LIST_QUEUES, request, each(StoredQueue, "queues"), timeout_s=timeout_s)


def queues_to_read(name: str) -> Call[tuple[int, ...]]:
    """Ask a reader for the ids of a topic's queues, those without a message included.

    A topic that is missing in the topic table has the queues that hold messages.
    """

    def queue_ids(answer: reader_pb2.ListQueuesResponse) -> tuple[int, ...]:
        if answer.described:
            return tuple(range(answer.described[0].read_queue_count))
        if name not in answer.topics:
            raise TopicNotFound(f"topic {name!r} does not exist")
        return tuple(queue.queue_id for queue in answer.queues)

    request = build(reader_pb2.ListQueuesRequest, topics=[name])
    return Call(wire.LIST_QUEUES, request, queue_ids)


class QueueCounts:
    """Numbers of queues that take writes, each good for KEPT_S seconds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[str, tuple[int, float]] = {}

    def known(self, topic: str) -> int | None:
        """Return a topic's number of queues, None if it must be asked for."""
        count, until = self._known.get(topic, (0, float("-inf")))
        return count if self._clock.monotonic() < until else None

    def learn(self, topic: str, count: int) -> int:
        """Take an answer in and return it."""
        self._known[topic] = (count, self._clock.monotonic() + KEPT_S)
        return count

    def forget(self, topic: str) -> None:
        """Ask again the next time: the topic was changed."""
        self._known.pop(topic, None)


class TopicOperations:
    """Topics, and the queues that take their messages."""

    queue_counts: QueueCounts

    topics = operation_of(topics)
    describe_topic = operation_of(describe_topic)
    stored_queues = operation_of(stored_queues)

    @operation
    def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Call[Topic]:
        """Create a topic; raises TopicExists if there is one of that name."""
        request = build(
            writer_pb2.CreateTopicRequest,
            name=name,
            queue_count=queues,
            attributes=dict(attributes or {}),
        )
        return Call(
            wire.CREATE_TOPIC, request, value(Topic), repeat=Repeat.NEVER, timeout_s=timeout_s
        )

    @operation
    def create_topics(
        self,
        names: Iterable[str],
        *,
        queues: int = 8,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Call[list[Topic]]:
        """Create topics that are alike, all or none; raises TopicExists if there is one of the names.

        A thousand cost about as much as one.
        """
        same = {"queue_count": queues, "attributes": dict(attributes or {})}
        request = build(
            writer_pb2.CreateTopicsRequest, topics=[{"name": name, **same} for name in names]
        )
        interpret = each(Topic, "topics")
        return Call(
            wire.CREATE_TOPICS, request, interpret, repeat=Repeat.NEVER, timeout_s=timeout_s
        )

    @operation
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
    ) -> Call[Topic]:
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

        def updated(answer: Any) -> Topic:
            self.queue_counts.forget(name)
            return value_of(Topic, answer)

        return Call(wire.UPDATE_TOPIC, request, updated, timeout_s=timeout_s)

    @operation
    def delete_topic(self, name: str, *, timeout_s: float | None = None) -> Call[None]:
        """Delete a topic; its records stay in the commit log until that is cut."""
        request = build(writer_pb2.DeleteTopicRequest, name=name)

        def deleted(_: object) -> None:
            self.queue_counts.forget(name)

        return Call(wire.DELETE_TOPIC, request, deleted, repeat=Repeat.NEVER, timeout_s=timeout_s)


def _description(answer: Any) -> TopicDescription:
    queues = {each.queue_id: (each.min_offset, each.max_offset) for each in answer.queues}
    return TopicDescription(topic=value_of(Topic, answer.topic), queues=queues)
