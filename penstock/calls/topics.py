"""Answers about topics, and the call of who reads one."""

from __future__ import annotations

from typing import Any

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import TopicNotFound
from penstock.requests import build, value_of
from penstock.v1 import reader_pb2
from penstock.values import StoredQueue, Topic, TopicDescription


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


def topic_of(topic: Any) -> Topic:
    """Return a topic."""
    return value_of(Topic, topic)


def topics_of(answer: Any) -> list[Topic]:
    """Return the topics of an answer."""
    return [value_of(Topic, topic) for topic in answer.topics]


def description_of(answer: Any) -> TopicDescription:
    """Return a topic and its queues' offsets."""
    queues = {each.queue_id: (each.min_offset, each.max_offset) for each in answer.queues}
    return TopicDescription(topic=topic_of(answer.topic), queues=queues)


def stored_queues_of(answer: Any) -> list[StoredQueue]:
    """Return the queues of an answer, of which there may be very many."""
    return [
        StoredQueue(
            topic=each.topic,
            queue_id=each.queue_id,
            min_offset=each.min_offset,
            max_offset=each.max_offset,
            min_commit_offset=each.min_commit_offset,
            end_commit_offset=each.end_commit_offset,
        )
        for each in answer.queues
    ]
