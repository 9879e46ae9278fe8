"""The writer's methods for topics. All of them write files, so all of them run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from penstock.v1 import common_pb2, writer_pb2
from services import wire
from services.loops import Gathering
from services.rpc import status
from services.rpc.servicer import Context
from storage.tables.topics import NewTopic, TopicConfig
from storage.writer import StoreWriter

TOPICS_MAX: Final = 10_000  # of a request


def _topics_message(topics: Sequence[TopicConfig]) -> writer_pb2.ListTopicsResponse:
    return writer_pb2.ListTopicsResponse(topics=map(wire.topic_message, topics))


def _queues_message(queues: Sequence[tuple[int, int, int]]) -> writer_pb2.DescribeTopicResponse:
    message = writer_pb2.DescribeTopicResponse()
    for queue_id, low, high in queues:
        message.queues.add(queue_id=queue_id, min_offset=low, max_offset=high)
    return message


class TopicMethods:
    """The methods of penstock.v1.Writer that are about topics."""

    def __init__(self, topics: StoreWriter) -> None:
        self._topics = topics
        # A change costs a sync: a thousand requests at once take a few.
        self._creation: Gathering[list[NewTopic], list[TopicConfig]] = Gathering(
            lambda _, groups: asyncio.to_thread(topics.create_topics, groups)
        )

    async def _created(
        self, requests: Iterable[writer_pb2.CreateTopicRequest]
    ) -> list[TopicConfig]:
        """Create topics, all or none; durable on return. Raises TopicExists, InvalidMessage."""
        return await self._creation.outcome(
            [
                NewTopic(
                    name=request.name,
                    queue_count=request.queue_count,
                    attributes=dict(request.attributes),
                )
                for request in requests
            ]
        )

    async def create_topic(
        self, request: writer_pb2.CreateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Create a topic, durable on return."""
        (topic,) = await self._created([request])
        return wire.topic_message(topic)

    async def create_topics(
        self, request: writer_pb2.CreateTopicsRequest, _context: Context
    ) -> writer_pb2.CreateTopicsResponse:
        """Create topics, all or none, durable on return."""
        if not request.topics:
            raise status.InvalidArgument("topics", "is empty; name at least one topic")
        if len(request.topics) > TOPICS_MAX:
            raise status.InvalidArgument(
                "topics", f"are too many; create at most {TOPICS_MAX} in one request"
            )
        topics = await self._created(request.topics)
        return writer_pb2.CreateTopicsResponse(topics=map(wire.topic_message, topics))

    async def update_topic(
        self, request: writer_pb2.UpdateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Change what is given of a topic, durable on return."""
        names = ("queue_count", "read_queue_count", "write_queue_count", "perm")
        given = {name: getattr(request, name) if request.HasField(name) else None for name in names}
        topic = await asyncio.to_thread(
            self._topics.update_topic,
            request.name,
            **given,
            attributes=dict(request.attributes),
            force=request.force,
        )
        return wire.topic_message(topic)

    async def delete_topic(
        self, request: writer_pb2.DeleteTopicRequest, _context: Context
    ) -> writer_pb2.DeleteTopicResponse:
        """Delete a topic; its records stay in the commit log."""
        await asyncio.to_thread(self._topics.delete_topic, request.name)
        return writer_pb2.DeleteTopicResponse()

    async def describe_topic(
        self, request: writer_pb2.DescribeTopicRequest, _context: Context
    ) -> bytes:
        """Return a topic and the offsets of its queues."""
        return await asyncio.to_thread(self._description, request.name)

    def _description(self, name: str) -> bytes:
        topic, offsets = self._topics.describe_topic(name)
        head = writer_pb2.DescribeTopicResponse(topic=wire.topic_message(topic))
        queues = [(queue_id, *bounds) for queue_id, bounds in enumerate(offsets)]
        return wire.sliced(head, queues, _queues_message)

    async def list_topics(self, _request: writer_pb2.ListTopicsRequest, _context: Context) -> bytes:
        """Return all topics by name."""
        return await asyncio.to_thread(self._list)

    def _list(self) -> bytes:
        topics = sorted(self._topics.list_topics(), key=lambda topic: topic.name)
        return wire.sliced(writer_pb2.ListTopicsResponse(), topics, _topics_message)
