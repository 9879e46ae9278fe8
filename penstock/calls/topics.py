"""Calls about topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import TopicNotFound
from penstock.requests import build, value_of
from penstock.retry import Repeat
from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from penstock.values import StoredQueue, Topic, TopicDescription


def create(name: str, *, queue_count: int, attributes: Mapping[str, str]) -> Call[Topic]:
    """Create a topic; a repeat would find it there."""
    request = build(
        writer_pb2.CreateTopicRequest,
        name=name,
        queue_count=queue_count,
        attributes=dict(attributes),
    )
    return Call(wire.CREATE_TOPIC, request, _topic, repeat=Repeat.NEVER)


def create_all(
    names: Iterable[str], *, queue_count: int, attributes: Mapping[str, str]
) -> Call[list[Topic]]:
    """Create topics that are alike, all or none."""
    new = [
        {"name": name, "queue_count": queue_count, "attributes": dict(attributes)} for name in names
    ]
    request = build(writer_pb2.CreateTopicsRequest, topics=new)
    return Call(
        wire.CREATE_TOPICS,
        request,
        lambda response: [_topic(topic) for topic in response.topics],
        repeat=Repeat.NEVER,
    )


def update(
    name: str,
    *,
    queue_count: int | None,
    read_queue_count: int | None,
    write_queue_count: int | None,
    perm: int | None,
    attributes: Mapping[str, str],
    force: bool,
) -> Call[Topic]:
    """Set what is given; doing so twice sets the same."""
    request = build(
        writer_pb2.UpdateTopicRequest,
        name=name,
        queue_count=queue_count,
        read_queue_count=read_queue_count,
        write_queue_count=write_queue_count,
        perm=perm,
        attributes=dict(attributes),
        force=force,
    )
    return Call(wire.UPDATE_TOPIC, request, _topic, not_found=TopicNotFound)


def delete(name: str) -> Call[None]:
    """Delete a topic; a repeat would not find it."""
    request = build(writer_pb2.DeleteTopicRequest, name=name)
    return Call(
        wire.DELETE_TOPIC,
        request,
        lambda _: None,
        repeat=Repeat.NEVER,
        not_found=TopicNotFound,
    )


def describe(name: str) -> Call[TopicDescription]:
    """Ask for a topic and its queues' offsets."""
    return Call(
        wire.DESCRIBE_TOPIC,
        build(writer_pb2.DescribeTopicRequest, name=name),
        lambda answer: TopicDescription(
            topic=_topic(answer.topic),
            queues={each.queue_id: (each.min_offset, each.max_offset) for each in answer.queues},
        ),
        not_found=TopicNotFound,
    )


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
    return Call(wire.LIST_QUEUES, request, queue_ids, not_found=TopicNotFound)


def stored_queues(topics: Iterable[str]) -> Call[list[StoredQueue]]:
    """Ask a reader for the queues with a message, or that had one, of some topics or of all."""
    return Call(
        wire.LIST_QUEUES,
        build(reader_pb2.ListQueuesRequest, topics=list(topics)),
        lambda answer: [
            StoredQueue(
                topic=each.topic,
                queue_id=each.queue_id,
                min_offset=each.min_offset,
                max_offset=each.max_offset,
                min_commit_offset=each.min_commit_offset,
                end_commit_offset=each.end_commit_offset,
            )
            for each in answer.queues
        ],
        not_found=TopicNotFound,
    )


def list_all() -> Call[list[Topic]]:
    """Ask for all topics."""
    return Call(
        wire.LIST_TOPICS,
        writer_pb2.ListTopicsRequest(),
        lambda answer: [_topic(each) for each in answer.topics],
    )


def _topic(topic: common_pb2.Topic) -> Topic:
    return value_of(Topic, topic)
