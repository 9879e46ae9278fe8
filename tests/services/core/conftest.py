"""One method served by each server that there is, with a channel of gRPC's own client to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc
import pytest

from services.rpc.aio_server import AioServer
from services.rpc.core.server import CoreServer
from services.rpc.served_call import CallServer, Handler

OPTIONS = [("grpc.use_local_subchannel_pool", 1)]
Serving = Callable[..., AbstractAsyncContextManager[tuple[CallServer, Any]]]


@pytest.fixture(params=[CoreServer, AioServer], ids=["core", "aio"])
def server_type(request: pytest.FixtureRequest) -> type[CallServer]:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def serving(server_type: type[CallServer]) -> Serving:
    """Return what serves a handler's function and gives the server and a channel."""

    @asynccontextmanager
    async def serve(
        run: Callable[..., Any],
        *,
        takes_stream: bool = False,
        is_brief: bool = False,
        calls_max: int = 100,
    ) -> AsyncIterator[tuple[CallServer, Any]]:
        handlers = {"/a.B/C": Handler(takes_stream, run, is_brief)}
        server = server_type(handlers, (), calls_max=calls_max)
        port = server.add_port("127.0.0.1:0")
        await server.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", OPTIONS) as channel:
                yield server, channel
        finally:
            await server.stop(0)

    return serve
