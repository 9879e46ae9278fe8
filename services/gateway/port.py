"""The gateway's port: RocketMQ's clients and nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from services.config.settings import GatewaySettings
from services.gateway.messaging import Messaging, Upstreams
from services.gateway.metrics import GatewayCollector
from services.rpc.call_counts import CallCounts
from services.rpc.calls import Interceptor
from services.rpc.running_settings import RunningSettings
from services.rpc.server import Contract, RpcServer


class GatewayPort:
    """Serves MessagingService on an address of its own; used on the event loop.

    ``ports`` is how many its process has.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        upstreams: Upstreams,
        draining: asyncio.Event,
        *,
        ports: int,
        interceptors: Sequence[Interceptor] = (),
        counts: CallCounts | None = None,
        running: RunningSettings | None = None,
    ) -> None:
        self._settings = settings
        self._messaging = Messaging(settings, upstreams, draining)
        self._server = RpcServer(
            self._messaging.contracts,
            settings,
            draining,
            ports=ports,
            interceptors=interceptors,
            counts=counts,
            running=running,
        )

    @property
    def clients(self) -> Contract:
        """What lists the clients, for another port of the process."""
        return self._messaging.clients

    @property
    def metrics(self) -> GatewayCollector:
        """What collects the families of the gateway."""
        return self._messaging.metrics

    async def start(self) -> str:
        """Begin to serve; return HOST:PORT as bound. Raises CannotListen, BadTlsFile."""
        address = await self._server.start(self._settings.listen)
        self._server.set_serving(serving=True)
        return address

    async def drain(self) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        await self._server.drain()

    async def close(self) -> None:
        """End all calls to the writer and the reader."""
        await self._messaging.close()
