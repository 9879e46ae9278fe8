"""MessagingService that stores nothing: hands what is sent to a consumer that waits, and answers constants."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from bench.controls import bare_server
from services import loops
from services.config.settings import GatewaySettings
from services.gateway.messages.statuses import OK
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.rpc.served_call import Handler, requests_of
from storage.format.receipt_handle import HANDLE_SIZE

POLL_SECONDS: Final = 20.0
SETTINGS: Final = service_pb2.TelemetryCommand(status=OK).SerializeToString()
HEARTBEAT: Final = service_pb2.HeartbeatResponse(status=OK).SerializeToString()
NOTHING: Final = service_pb2.ReceiveMessageResponse(
    status=v2.Status(code=v2.MESSAGE_NOT_FOUND)
).SerializeToString()
HANDLE: Final = "h" * HANDLE_SIZE
BEGIN: Final = service_pb2.ReceiveMessageResponse(status=OK).SerializeToString()
END: Final = service_pb2.ReceiveMessageResponse()
END.delivery_timestamp.GetCurrentTime()
ACKNOWLEDGED: Final = service_pb2.AckMessageResponse(
    status=OK, entries=[service_pb2.AckMessageResultEntry(receipt_handle=HANDLE, status=OK)]
).SerializeToString()


class PushServer:
    """Messages that were sent and nobody has; used on the event loop."""

    def __init__(self) -> None:
        self._sent: asyncio.Queue[v2.Message] = asyncio.Queue()

    async def send(self, request: bytes, _context: Any) -> bytes:
        """Keep one message, and answer as for one that is stored."""
        message = service_pb2.SendMessageRequest.FromString(request).messages[0]
        message.system_properties.receipt_handle = HANDLE
        self._sent.put_nowait(message)
        entry = service_pb2.SendResultEntry(
            status=OK, message_id=message.system_properties.message_id
        )
        return service_pb2.SendMessageResponse(status=OK, entries=[entry]).SerializeToString()

    async def receive(self, request: bytes, context: Any) -> None:
        """Wait for a message, and write what there is, up to a batch; after 20 s that there is none."""
        batch_size = service_pb2.ReceiveMessageRequest.FromString(request).batch_size
        try:
            async with asyncio.timeout(POLL_SECONDS):
                messages = [await self._sent.get()]
        except TimeoutError:
            await context.write(NOTHING)
            return
        while len(messages) < batch_size and not self._sent.empty():
            messages.append(self._sent.get_nowait())
        await context.write(BEGIN)
        for message in messages:
            answer = service_pb2.ReceiveMessageResponse(message=message)
            await context.write(answer.SerializeToString())
        await context.write(END.SerializeToString())

    async def acknowledge(self, request: bytes, _context: Any) -> bytes:
        """Answer as for a message that was leased."""
        service_pb2.AckMessageRequest.FromString(request)
        return ACKNOWLEDGED

    async def telemetry(self, context: Any) -> None:
        """Answer each command as settings are answered."""
        async for _ in requests_of(context):
            await context.write(SETTINGS)

    async def heartbeat(self, _request: bytes, _context: Any) -> bytes:
        """Answer that the client is known."""
        return HEARTBEAT


async def _serve() -> None:
    server = PushServer()
    handlers = {
        "Telemetry": Handler(takes_stream=True, run=server.telemetry),
        "Heartbeat": Handler(takes_stream=False, run=server.heartbeat),
        "SendMessage": Handler(takes_stream=False, run=server.send),
        "ReceiveMessage": Handler(takes_stream=False, run=server.receive),
        "AckMessage": Handler(takes_stream=False, run=server.acknowledge),
    }
    service = "apache.rocketmq.v2.MessagingService"
    await bare_server.serve("push server", GatewaySettings(), {service: handlers})


if __name__ == "__main__":
    loops.run(_serve())
