"""Delayed messages as RocketMQ's clients take them back."""

from __future__ import annotations

from typing import Final

import grpc

from penstock.v1 import timers_pb2
from services.gateway.messages import names
from services.gateway.messages.statuses import CallRefused, refusal_of
from services.gateway.messages.times import milliseconds_of
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.upstream import CalledService
from storage.errors import InvalidMessage
from storage.format.recall_handle import RecallHandle, decode_recall_handle
from storage.format.timer_files import out_ms

RECALL: Final = "/penstock.v1.Timers/Recall"


class MessageRecalls:
    """Gives out recall handles, and asks the writer for recalls."""

    def __init__(self, writer: CalledService, broker_name: str) -> None:
        self._writer = writer
        self._broker_name = broker_name

    def handle_of(self, message: v2.Message, topic: str, now_ms: int) -> str:
        """Return the recall handle of a message that was sent, empty unless it is delivered later."""
        deliver_ms = delivery_ms(message)
        if deliver_ms <= now_ms:
            return ""
        recall_ms = out_ms(deliver_ms) + 1
        unique_key = message.system_properties.message_id
        return RecallHandle(topic, self._broker_name, recall_ms, unique_key).encode()

    async def recall(
        self, request: service_pb2.RecallMessageRequest
    ) -> service_pb2.RecallMessageResponse:
        """Have a message not delivered. Raises CallRefused for a handle that is wrong, late or foreign."""
        topic = names.topic_of(request.topic)
        try:
            handle = decode_recall_handle(request.recall_handle)
        except InvalidMessage as error:
            raise CallRefused(v2.BAD_REQUEST, str(error)) from error
        if (handle.topic, handle.broker) != (topic, self._broker_name):
            raise CallRefused(v2.BAD_REQUEST, "the recall handle is of another topic or broker")
        asked = timers_pb2.RecallRequest(recall_handle=request.recall_handle, topic=topic)
        try:
            await self._writer.call(RECALL, asked)
        except grpc.aio.AioRpcError as error:
            refused = refusal_of(error)
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                raise CallRefused(v2.BAD_REQUEST, str(refused)) from error
            raise refused from error
        return service_pb2.RecallMessageResponse(
            status=v2.Status(code=v2.OK, message="OK"), message_id=handle.unique_key
        )


def delivery_ms(message: v2.Message) -> int:
    """Return when a message is to be delivered, 0 for at once."""
    system = message.system_properties
    if not system.HasField("delivery_timestamp"):
        return 0
    return milliseconds_of(system.delivery_timestamp, otherwise_ms=0)
