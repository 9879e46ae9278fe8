"""A server with the services' transport and options, for controls that store nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from services import memory
from services.config.settings import ProcessSettings
from services.rpc.limits import server_options
from services.rpc.served_call import Handler
from services.rpc.server import call_server
from storage.files import open_files


async def serve(
    name: str,
    settings: ProcessSettings,
    services: Mapping[str, Mapping[str, Handler]],
    *,
    address: str = "127.0.0.1:0",
) -> None:
    """Serve the methods of gRPC services until it is ended; says where as services do."""
    memory.keep_buffers()
    open_files.raise_limit()
    server = call_server(settings.rpc_server)(
        {
            f"/{service}/{method}": handler
            for service, handlers in services.items()
            for method, handler in handlers.items()
        },
        server_options(settings),
        calls_max=settings.concurrent_calls_max,
    )
    port = server.add_port(address)
    await server.start()
    print(f"{name} serves on 127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()
