"""MessagingService as constants: what the transport costs of clients that wait."""

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

POLL_SECONDS: Final = 20.0
SETTINGS: Final = service_pb2.TelemetryCommand(status=OK).SerializeToString()
HEARTBEAT: Final = service_pb2.HeartbeatResponse(status=OK).SerializeToString()
NOTHING: Final = service_pb2.ReceiveMessageResponse(
    status=v2.Status(code=v2.MESSAGE_NOT_FOUND)
).SerializeToString()


async def _telemetry(context: Any) -> None:
    async for _ in requests_of(context):
        await context.write(SETTINGS)


async def _receive(_request: bytes, context: Any) -> None:
    await asyncio.sleep(POLL_SECONDS)
    await context.write(NOTHING)


async def _answer(_request: bytes, _context: Any) -> bytes:
    return HEARTBEAT


async def _serve() -> None:
    handlers = {
        "Telemetry": Handler(takes_stream=True, run=_telemetry),
        "ReceiveMessage": Handler(takes_stream=False, run=_receive),
        "Heartbeat": Handler(takes_stream=False, run=_answer),
    }
    service = "apache.rocketmq.v2.MessagingService"
    await bare_server.serve("idle server", GatewaySettings(), {service: handlers})


if __name__ == "__main__":
    loops.run(_serve())
