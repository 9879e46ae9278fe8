"""A grpc.aio server with the services' options, for controls that store nothing."""

from __future__ import annotations

from typing import Any

import grpc

from services import memory
from services.process_settings import ProcessSettings
from services.rpc.limits import server_options
from storage.files import open_files


async def serve(name: str, settings: ProcessSettings, service: str, handlers: Any) -> None:
    """Serve the methods of one service on a free port until it is ended; says where as services do."""
    memory.keep_buffers()
    open_files.raise_limit()
    server = grpc.aio.server(options=server_options(settings))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"{name} serves on 127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()
