"""MessagingService as constants: what the transport costs of clients that wait."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import grpc

from services import loops, memory
from services.rocketmq.statuses import OK
from services.rocketmq.v2 import definition_pb2 as v2
from services.rocketmq.v2 import service_pb2
from services.rpc.limits import server_options
from services.settings import GatewaySettings
from storage.files import open_files

POLL_SECONDS: Final = 20.0
SETTINGS: Final = service_pb2.TelemetryCommand(status=OK).SerializeToString()
HEARTBEAT: Final = service_pb2.HeartbeatResponse(status=OK).SerializeToString()
NOTHING: Final = service_pb2.ReceiveMessageResponse(
    status=v2.Status(code=v2.MESSAGE_NOT_FOUND)
).SerializeToString()


async def _telemetry(requests: Any, context: Any) -> None:
    async for _ in requests:
        await context.write(SETTINGS)


async def _receive(_request: bytes, context: Any) -> None:
    await asyncio.sleep(POLL_SECONDS)
    await context.write(NOTHING)


async def _answer(_request: bytes, _context: Any) -> bytes:
    return HEARTBEAT


async def _serve() -> None:
    memory.keep_buffers()
    open_files.raise_limit()
    settings = GatewaySettings()
    server = grpc.aio.server(options=server_options(settings))
    handlers = {
        "Telemetry": grpc.stream_stream_rpc_method_handler(_telemetry),
        "ReceiveMessage": grpc.unary_stream_rpc_method_handler(_receive),
        **{
            name: grpc.unary_unary_rpc_method_handler(_answer)
            for name in ("Heartbeat", "QueryRoute", "QueryAssignment")
        },
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("apache.rocketmq.v2.MessagingService", handlers),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"idle server serves on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    loops.run(_serve())
