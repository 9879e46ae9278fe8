"""pytest-grpc's fixtures over a grpc.aio server that runs in a background loop.

A test module gives ``grpc_servicer_factory`` (called on the loop with the draining event) and
``grpc_service`` (its descriptor); or overrides ``grpc_addr`` with the address of a whole service.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from google.protobuf.descriptor import ServiceDescriptor
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from service_settings import writer_settings

from services.rpc.server import Contract, RpcServer
from services.testing import BackgroundLoop


@pytest.fixture(scope="module")
def background() -> Iterator[BackgroundLoop]:
    with BackgroundLoop() as loop:
        yield loop


@pytest.fixture(scope="module")
def grpc_settings() -> Any:
    return writer_settings(Path("unused"), message_bytes_max=1 << 20)


@pytest.fixture(scope="module")
def grpc_server(
    background: BackgroundLoop,
    grpc_service: ServiceDescriptor,
    grpc_servicer_factory: Callable[[asyncio.Event], Any],
    grpc_settings: Any,
) -> Iterator[RpcServer]:
    """The server with its address in ``.address`` and its draining event in ``.draining``."""

    async def start() -> RpcServer:
        draining = asyncio.Event()
        server = RpcServer(
            [Contract(grpc_service, grpc_servicer_factory(draining))], grpc_settings, draining
        )
        server.address = await server.start("127.0.0.1:0")  # type: ignore[attr-defined]
        server.draining = draining  # type: ignore[attr-defined]
        server.set_serving(serving=True)
        return server

    server = background.run(start())
    yield server
    background.run(server.drain())


@pytest.fixture(scope="module")
def grpc_addr(grpc_server: RpcServer) -> str:
    return grpc_server.address  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def grpc_create_channel(grpc_addr: str) -> Callable[..., grpc.Channel]:
    return lambda options=None: grpc.insecure_channel(
        grpc_addr, options or [("grpc.max_receive_message_length", -1)]
    )


class Refusal:
    """What a refused call says: code, message, and its details by type."""

    def __init__(self, error: grpc.RpcError) -> None:
        self.code = error.code()
        self.message = error.details()
        self.trailing = {m.key: m.value for m in error.trailing_metadata()}
        self.bad_request = error_details_pb2.BadRequest()
        self.retry = error_details_pb2.RetryInfo()
        self.info = error_details_pb2.ErrorInfo()
        status = rpc_status.from_call(error)
        for detail in status.details if status else ():
            for kind in (self.bad_request, self.retry, self.info):
                if detail.Is(kind.DESCRIPTOR):
                    detail.Unpack(kind)


@pytest.fixture(scope="session")
def refusal() -> Callable[..., Refusal]:
    """Return a function that makes a call which must be refused, and says how it was."""

    def call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Refusal:
        with pytest.raises(grpc.RpcError) as caught:
            answer = function(*arguments, timeout=20, **options)
            if hasattr(answer, "__iter__"):
                list(answer)
        return Refusal(caught.value)

    return call


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority, and what it has signed."""
    return Certificates(tmp_path_factory.mktemp("certificates"))
