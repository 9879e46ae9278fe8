"""A port with TLS, or without, of a writer that does nothing but remember who called."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from service_settings import writer_settings

from penstock import TLS, Client
from penstock.v1 import writer_pb2
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import Context
from services.testing import BackgroundLoop


class ListingServicer:
    """Lists no topics, and remembers who asked."""

    def __init__(self) -> None:
        self.callers: list[str | None] = []

    def __getattr__(self, _name: str) -> Any:
        return self.list_topics

    async def list_topics(self, _request: Any, context: Context) -> Any:
        self.callers.append(context.peer_identity())
        return writer_pb2.ListTopicsResponse()


class TlsPort:
    """A port of a writer whose servicer does nothing."""

    def __init__(self, background: BackgroundLoop, settings: dict[str, Any]) -> None:
        self.servicer = ListingServicer()
        self._background = background
        self._settings = settings

    def __enter__(self) -> TlsPort:
        async def start() -> tuple[RpcServer, str]:
            service = writer_pb2.DESCRIPTOR.services_by_name["Writer"]
            settings = writer_settings(Path("unused"), **self._settings)
            server = RpcServer([Contract(service, self.servicer)], settings, asyncio.Event())
            return server, await server.start("127.0.0.1:0")

        self._server, self.address = self._background.run(start())
        return self

    def __exit__(self, *_: object) -> None:
        self._background.run(self._server.drain())

    def ask(self, tls: TLS | None) -> None:
        """Ask as our client does. Raises Unavailable."""
        with Client(writer=self.address, tls=tls, timeout_s=0.5) as client:
            client.topics()

    def shown(self) -> str:
        """Return the certificate that a new connection is shown."""
        host, _, port = self.address.rpartition(":")
        return ssl.get_server_certificate((host, int(port)), timeout=5)
