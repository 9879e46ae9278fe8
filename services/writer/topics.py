"""The writer's methods for topics. All of them write files, so all of them run in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.v1 import common_pb2, writer_pb2
from services.rpc.servicer import Context
from storage.tables.topics import TopicConfig


class TopicStore(Protocol):
    """What these methods need of the engine."""

    def create_topic(
        self, name: str, queue_count: int, *, attributes: Mapping[str, str]
    ) -> TopicConfig: ...
    def update_topic(
        self,
        name: str,
        *,
        queue_count: int | None,
        perm: int | None,
        attributes: Mapping[str, str],
    ) -> TopicConfig: ...
    def delete_topic(self, name: str) -> None: ...
    def list_topics(self) -> Sequence[TopicConfig]: ...
    def describe_topic(self, name: str) -> tuple[TopicConfig, Sequence[tuple[int, int]]]: ...


class TopicMethods:
    """The methods of penstock.v1.Writer that are about topics."""

    def __init__(self, topics: TopicStore) -> None:
        self._topics = topics

    async def create_topic(
        self, request: writer_pb2.CreateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Create a topic, durable on return."""
        topic = await asyncio.to_thread(
            self._topics.create_topic,
            request.name,
            request.queue_count,
            attributes=dict(request.attributes),
        )
        return topic_message(topic)

    async def update_topic(
        self, request: writer_pb2.UpdateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Change what is given of a topic, durable on return."""
        topic = await asyncio.to_thread(
            self._topics.update_topic,
            request.name,
            queue_count=request.queue_count if request.HasField("queue_count") else None,
            perm=request.perm if request.HasField("perm") else None,
            attributes=dict(request.attributes),
        )
        return topic_message(topic)

    async def delete_topic(
        self, request: writer_pb2.DeleteTopicRequest, _context: Context
    ) -> writer_pb2.DeleteTopicResponse:
        """Delete a topic; its records stay in the commit log."""
        await asyncio.to_thread(self._topics.delete_topic, request.name)
        return writer_pb2.DeleteTopicResponse()

    async def describe_topic(
        self, request: writer_pb2.DescribeTopicRequest, _context: Context
    ) -> writer_pb2.DescribeTopicResponse:
        """Return a topic and the offsets of its queues."""
        topic, offsets = await asyncio.to_thread(self._topics.describe_topic, request.name)
        return writer_pb2.DescribeTopicResponse(
            topic=topic_message(topic),
            queues=[
                writer_pb2.QueueState(queue_id=queue_id, min_offset=low, max_offset=high)
                for queue_id, (low, high) in enumerate(offsets)
            ],
        )

    async def list_topics(
        self, _request: writer_pb2.ListTopicsRequest, _context: Context
    ) -> writer_pb2.ListTopicsResponse:
        """Return all topics by name."""
        topics = sorted(self._topics.list_topics(), key=lambda topic: topic.name)
        return writer_pb2.ListTopicsResponse(topics=map(topic_message, topics))


def topic_message(topic: TopicConfig) -> common_pb2.Topic:
    """Return a topic as the contract has it."""
    return common_pb2.Topic(
        name=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        perm=topic.perm,
        attributes=dict(topic.attributes),
    )
