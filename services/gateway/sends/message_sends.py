"""Messages that clients send: plain ones by kernels, all others through protobuf's objects."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from services.gateway.messages.plain_sends.sends import PlainSends, answer_of
from services.gateway.messages.queue_choice import queue_of_message_group
from services.gateway.messages.sent_messages import (
    Stamp,
    check_message,
    holds_transactions,
    record_of,
    topic_of_messages,
)
from services.gateway.messages.statuses import OK, CallRefused
from services.gateway.recalls import MessageRecalls, delivery_ms
from services.gateway.sends.batch_stream import HALF_QUEUE
from services.gateway.sends.sender import ANSWER_SECONDS_MAX, TIMER_QUEUE, Sender
from services.gateway.sessions import seconds_left
from services.gateway.topics import KnownTopic, TopicCache
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.rpc.calls import parsed
from services.rpc.peers import host_of_peer
from services.rpc.servicer import Context

_TURNS_MAX: Final = 10_000
_TOPIC_CHANGED: Final = (v2.TOPIC_NOT_FOUND, v2.BAD_REQUEST)  # since it was asked for, perhaps


class MessageSends:
    """Chooses queues, has records stored, and answers; used on the event loop."""

    def __init__(
        self,
        topics: TopicCache,
        sender: Sender,
        halves: Sender,
        recalls: MessageRecalls,
        stamp: Stamp,
        *,
        request_bytes_max: int,
    ) -> None:
        self._topics = topics
        self._sender = sender
        self._halves = halves
        self._recalls = recalls
        self._stamp = stamp
        self._plain = PlainSends(stamp)
        self._request_bytes_max = request_bytes_max
        self._turns: defaultdict[str, itertools.count[int]] = defaultdict(itertools.count)
        self._loop = asyncio.get_running_loop()

    async def send(self, request: bytes, context: Context) -> bytes:
        """Store the messages of a serialized SendMessageRequest, all or none; return the answer's bytes."""
        answer = await self._send_plain(request, context)
        if answer is not None:
            return answer
        parse = service_pb2.SendMessageRequest.FromString
        sent = await self._send(parsed(parse, request, self._request_bytes_max), context)
        return sent.SerializeToString()

    async def _send_plain(self, request: bytes, context: Context) -> bytes | None:
        """Store the message of a plain request; None, and nothing stored, if ``_send`` has to decide."""
        name = self._plain.read(request, born_host=host_of_peer(context.peer()))
        topic = None if name is None else self._topics.fresh(name)
        if topic is None or v2.NORMAL not in topic.accepts or not topic.write_queue_count:
            return None
        queue_id = next(self._turn_of(topic.name)) % topic.write_queue_count
        record = self._plain.record(topic.name, queue_id, now_ms=time.time_ns() // 1_000_000)
        if record is None:
            return None
        message_id = self._plain.message_id()
        until = self._loop.time() + seconds_left(context, ANSWER_SECONDS_MAX)
        try:
            [queue_offset] = await self._sender.store([(topic.name, queue_id)], [record], until)
        except CallRefused as refused:
            if refused.code not in _TOPIC_CHANGED:
                raise
            return None
        return answer_of(message_id, queue_offset)

    async def _send(
        self, request: service_pb2.SendMessageRequest, context: Context
    ) -> service_pb2.SendMessageResponse:
        name = topic_of_messages(request.messages)
        topic = self._topics.fresh(name) or await self._topics.find(name)
        now_ms = time.time_ns() // 1_000_000
        try:
            offsets = await self._store(request.messages, topic, now_ms, context)
        except CallRefused as refused:
            if refused.code not in _TOPIC_CHANGED:
                raise
            if self._topics.fresh(name) in (topic, None):
                self._topics.forget(name)
            now = await self._topics.find(name)
            if now.write_queue_count >= topic.write_queue_count:
                raise
            # Its write queues were lowered since it was asked for: the queue was our choice.
            offsets = await self._store(request.messages, now, now_ms, context)
        answer = service_pb2.SendMessageResponse(status=OK)
        for message, offset in zip(request.messages, offsets, strict=True):
            message_id = message.system_properties.message_id
            answer.entries.add(
                status=OK,
                message_id=message_id,
                transaction_id=message_id,
                offset=offset,
                recall_handle=self._recalls.handle_of(message, name, now_ms),
            )
        return answer

    async def _store(
        self,
        messages: Sequence[v2.Message],
        topic: KnownTopic,
        now_ms: int,
        context: Context,
    ) -> list[int]:
        """Store messages in queues of their topic; return their queue offsets. Raises CallRefused."""
        for message in messages:
            check_message(message, topic.accepts, self._stamp.body_bytes_max)
        if not topic.write_queue_count:
            raise CallRefused(v2.FORBIDDEN, f"topic {topic.name} may not be written")
        born_host = host_of_peer(context.peer())
        turn = next(self._turn_of(topic.name)) % topic.write_queue_count
        queue_ids = [_queue_of(message, topic, turn) for message in messages]
        records = [
            record_of(
                message, topic.name, queue_id, born_host=born_host, now_ms=now_ms, stamp=self._stamp
            )
            for message, queue_id in zip(messages, queue_ids, strict=True)
        ]
        until = self._loop.time() + seconds_left(context, ANSWER_SECONDS_MAX)
        if holds_transactions(messages):
            return await self._halves.store([HALF_QUEUE] * len(records), records, until)
        queues = [
            TIMER_QUEUE if delivery_ms(message) > now_ms else (topic.name, queue_id)
            for message, queue_id in zip(messages, queue_ids, strict=True)
        ]
        return await self._sender.store(queues, records, until)

    def _turn_of(self, topic: str) -> itertools.count[int]:
        if len(self._turns) > _TURNS_MAX:
            self._turns.clear()
        return self._turns[topic]


def _queue_of(message: v2.Message, topic: KnownTopic, turn: int) -> int:
    message_group = message.system_properties.message_group
    if message_group:
        return queue_of_message_group(message_group, topic.write_queue_count)
    return turn
