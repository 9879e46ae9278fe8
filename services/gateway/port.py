"""The gateway's port: RocketMQ's clients and nobody else, in plaintext and with TLS."""

from __future__ import annotations

import asyncio

import grpc

from services.config.settings import GatewaySettings
from services.gateway.messaging import Messaging, Upstreams
from services.gateway.metrics import GatewayCollector
from services.rpc.call_counts import CallCounts
from services.rpc.server import Contract, RpcServer


class GatewayPort:
    """Serves MessagingService on an address of its own; used on the event loop.

    ``ports`` is how many its process has, with TLS or without.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        upstreams: Upstreams,
        draining: asyncio.Event,
        *,
        ports: int,
        counts: CallCounts | None = None,
    ) -> None:
        self._settings = settings
        self._messaging = Messaging(settings, upstreams, draining)
        self._server = RpcServer(
            self._messaging.contracts, settings, draining, ports=ports, counts=counts
        )

    @property
    def clients(self) -> Contract:
        """What lists the clients, for another port of the process."""
        return self._messaging.clients

    @property
    def metrics(self) -> GatewayCollector:
        """What collects the families of the gateway."""
        return self._messaging.metrics

    async def start(self) -> list[str]:
        """Begin to serve; return each HOST:PORT as bound, in words. Raises CannotListen, OSError for a certificate that is away."""
        with_tls = []
        if self._settings.tls_listen:
            credentials = _tls_credentials(self._settings)
            address = self._server.add_tls(self._settings.tls_listen, credentials)
            with_tls.append(f"{address} with TLS")
        address = await self._server.start(self._settings.listen)
        self._server.set_serving(serving=True)
        return [address, *with_tls]

    async def drain(self) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        await self._server.drain()

    async def close(self) -> None:
        """End all calls to the writer and the reader."""
        await self._messaging.close()


def _tls_credentials(settings: GatewaySettings) -> grpc.ServerCredentials:
    """Read the PEM files of the certificate chain and its key; a new certificate takes a restart."""
    assert settings.tls_certificate is not None and settings.tls_key is not None
    chain, key = settings.tls_certificate.read_bytes(), settings.tls_key.read_bytes()
    return grpc.ssl_server_credentials([(key, chain)])
