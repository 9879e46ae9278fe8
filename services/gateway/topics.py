"""What the gateway knows of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.v1 import common_pb2, writer_pb2
from services.gateway.answer_cache import ANSWER_SECONDS, AnswerCache
from services.gateway.messages.topic_types import accepted_types
from services.gateway.v2 import definition_pb2 as v2

DESCRIBE: Final = "/penstock.v1.Writer/DescribeTopic"
_READ: Final = 4
_WRITE: Final = 2


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """A topic as clients see it."""

    name: str
    read_queue_count: int
    write_queue_count: int
    accepts: tuple[v2.MessageType, ...]

    @classmethod
    def of(cls, topic: common_pb2.Topic) -> KnownTopic:
        """Return what clients see of a topic of the store."""
        return cls(
            topic.name,
            topic.read_queue_count if topic.perm & _READ else 0,
            topic.write_queue_count if topic.perm & _WRITE else 0,
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


class TopicCache(AnswerCache[KnownTopic]):
    """Topics by name, as the writer describes them."""

    async def _asked(self, name: str) -> KnownTopic:
        request = writer_pb2.DescribeTopicRequest(name=name)
        answer = await self._service.call(DESCRIBE, request, timeout_s=ANSWER_SECONDS)
        return KnownTopic.of(writer_pb2.DescribeTopicResponse.FromString(answer).topic)
