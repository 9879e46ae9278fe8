"""The echo's unary method on grpc.aio's own server, with the services' options and event loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from bench.controls import echo
from services import loops, memory
from services.config.settings import WriterSettings
from services.rpc.limits import server_options


async def _unary(_request: bytes, _context: Any) -> bytes:
    return echo.UNARY_ANSWER


async def _serve() -> None:
    memory.keep_buffers()
    server = grpc.aio.server(options=server_options(WriterSettings(store=Path("unused"))))
    service, _, method = echo.UNARY.strip("/").partition("/")
    handlers = {method: grpc.unary_unary_rpc_method_handler(_unary)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"aio server serves on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    loops.run(_serve())
