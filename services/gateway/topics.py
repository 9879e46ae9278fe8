"""What the gateway knows of topics: asked of the writer, kept for a moment, and for longer while it is away."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

import grpc

from penstock.v1 import common_pb2, writer_pb2
from services.gateway.messages.statuses import CallRefused, refusal_of
from services.gateway.messages.topic_types import accepted_types
from services.gateway.v2 import definition_pb2 as v2
from services.loops import shielded
from services.upstream import CalledService

DESCRIBE: Final = "/penstock.v1.Writer/DescribeTopic"
FRESH_SECONDS: Final = 2.0
TOPICS_MAX: Final = 10_000
_ANSWER_SECONDS: Final = 2.0  # a client waits for 3
_READ: Final = 4
_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as clients see it."""

    name: str
    read_queue_count: int
    write_queue_count: int
    perm: int
    accepts: tuple[v2.MessageType, ...]

    @classmethod
    def of(cls, topic: common_pb2.Topic) -> KnownTopic:
        """Return what clients see of a topic of the store."""
        return cls(
            topic.name,
            topic.read_queue_count if topic.perm & _READ else 0,
            topic.write_queue_count if topic.perm & _WRITE else 0,
            topic.perm,
            accepted_types(topic.attributes),
        )

    def permission(self, queue_id: int) -> v2.Permission:
        """Return what may be done with a queue."""
        readable, writable = queue_id < self.read_queue_count, queue_id < self.write_queue_count
        if readable and writable:
            return v2.READ_WRITE
        return v2.READ if readable else v2.WRITE if writable else v2.NONE

    @property
    def queue_count(self) -> int:
        """How many queues can be read or written."""
        return max(self.read_queue_count, self.write_queue_count)


class TopicCache:
    """Topics by name; those asked for last stay, TOPICS_MAX of them."""

    def __init__(self, writer: CalledService) -> None:
        self._writer = writer
        self._known: OrderedDict[str, tuple[KnownTopic, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[KnownTopic]] = {}
        self._loop = asyncio.get_running_loop()

    def fresh(self, name: str) -> KnownTopic | None:
        """Return a topic that was asked for a moment ago, None if it has to be asked for."""
        found = self._known.get(name)
        if found is None or self._loop.time() - found[1] > FRESH_SECONDS:
            return None
        return found[0]

    async def find(self, name: str) -> KnownTopic:
        """Return a topic, as it was last while the writer does not answer. Raises CallRefused."""
        topic = self.fresh(name)
        if topic is not None:
            return topic
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._ask(name))
            asking.add_done_callback(lambda _: self._asking.pop(name, None))
        return await shielded(asking)

    def forget(self, name: str) -> None:
        """Ask again next time: the writer says that the topic is another one."""
        self._known.pop(name, None)

    async def _ask(self, name: str) -> KnownTopic:
        request = writer_pb2.DescribeTopicRequest(name=name)
        try:
            answer = await self._writer.call(DESCRIBE, request, timeout_s=_ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            known = self._known.get(name)
            if known is not None and error.code() in (
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
            ):
                return known[0]
            self.forget(name)
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise CallRefused(v2.TOPIC_NOT_FOUND, f"there is no topic {name}") from None
            raise refusal_of(error) from None
        topic = KnownTopic.of(writer_pb2.DescribeTopicResponse.FromString(answer).topic)
        self._known[name] = topic, self._loop.time()
        self._known.move_to_end(name)
        while len(self._known) > TOPICS_MAX:
            self._known.popitem(last=False)
        return topic
