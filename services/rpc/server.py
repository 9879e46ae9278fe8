"""One server for the contracts of a port, with what all services share."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from services import logs
from services.config.settings import ProcessSettings
from services.config.values import is_open_to_network
from services.rpc.aio_server import AioServer
from services.rpc.call_counts import CallCounts
from services.rpc.calls import PARSED_BYTES_MAX, CallHandlers, Interceptor, RefusalAnswer
from services.rpc.health import Health
from services.rpc.limits import server_options
from services.rpc.ports import CannotListen
from services.rpc.reflection import Reflection
from services.rpc.running_settings import RunningSettings
from services.rpc.served_call import CallServer
from services.rpc.tls import PortTls

_HEALTH: Final = health_pb2.DESCRIPTOR.services_by_name["Health"]
WATCHED_PART: Final = 8  # of the calls of a port, one part may be watches of its health
_REFLECTION: Final = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]


@functools.cache  # its warning comes once a process
def call_server(kind: str) -> type[CallServer]:
    """Return the server of a kind; where gRPC's core has changed it is the one on grpc.aio."""
    if kind == "core":
        try:
            from services.rpc.core.server import CoreServer
        except (ImportError, AttributeError, TypeError) as error:
            logs.get_logger().warning(
                "this grpcio's core is not known: calls are taken by grpc.aio and cost three times as much",
                grpcio=grpc.__version__,
                problem=str(error),
            )
        else:
            return CoreServer
    return AioServer


class Contract(NamedTuple):
    """A service, and the object that serves it (``services.rpc.servicer``).

    The last two are as in ``CallHandlers.of_service``.
    """

    service: ServiceDescriptor
    servicer: Any
    parsed_bytes_max: int = PARSED_BYTES_MAX
    refusal_answer: RefusalAnswer | None = None


class RpcServer:
    """Serves contracts on one port, with their health and reflection, until it is drained."""

    def __init__(
        self,
        contracts: Sequence[Contract],
        settings: ProcessSettings,
        draining: asyncio.Event,
        *,
        ports: int = 1,
        interceptors: Sequence[Interceptor] = (),
        counts: CallCounts | None = None,
        running: RunningSettings | None = None,
    ) -> None:
        """Serve every contract; each call goes through all interceptors, the first one outermost.

        ``ports`` is how many its process has: connections are counted on each of them. ``counts`` gets all calls
        but those of health and reflection. ``running`` is given where a process has several ports.
        """
        self._draining = draining
        self._settings = settings
        self._log = logs.get_logger()
        names = tuple(contract.service.full_name for contract in contracts)
        self._health = Health(("", *names), max(1, settings.concurrent_calls_max // WATCHED_PART))
        reflected = (*names, _HEALTH.full_name, _REFLECTION.full_name)
        running = running or RunningSettings(settings)
        calls = CallHandlers(running=running, interceptors=interceptors, counts=counts)
        own_calls = CallHandlers(running=running)
        handlers = own_calls.of_service(_HEALTH, self._health)
        handlers |= calls.of_service(_REFLECTION, Reflection(reflected))
        for each in contracts:
            handlers |= calls.of_service(
                each.service,
                each.servicer,
                parsed_bytes_max=each.parsed_bytes_max,
                refusal_answer=each.refusal_answer,
            )
        self._server = call_server(settings.rpc_server)(
            handlers, server_options(settings, ports), calls_max=settings.concurrent_calls_max
        )
        self._serving: bool | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self, listen: str) -> str:
        """Begin to serve, with health NOT_SERVING; return HOST:PORT as bound. Raises CannotListen,
        BadTlsFile.
        """
        host = listen.rpartition(":")[0]
        self.set_serving(serving=False)
        tls = PortTls.of(self._settings)
        try:
            port = self._server.add_port(listen, None if tls is None else tls.credentials())
        except RuntimeError as error:
            raise CannotListen(listen) from error
        await self._server.start()
        address = f"{host}:{port}"
        self._log.info("listening", address=address, tls=tls is not None)
        has_accounts = getattr(self._settings, "accounts", False)
        if is_open_to_network(listen) and self._settings.client_ca is None and not has_accounts:
            without = "plaintext and without accounts" if tls is None else "without accounts"
            self._log.warning(
                f"open to the network {without}: whoever reaches this address may use it",
                address=address,
            )
        if tls is not None:
            self._watching = asyncio.get_running_loop().create_task(tls.watch())
        return address

    def set_serving(self, *, serving: bool) -> None:
        """Set the health of every service and of the whole server."""
        if serving == self._serving or self._draining.is_set():
            return
        self._serving = serving
        self._health.set(serving=serving)
        self._log.info("health", serving=serving)

    async def drain(self) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        self._draining.set()
        self._health.end()
        if self._watching is not None:
            self._watching.cancel()
        await self._server.stop(self._settings.drain_grace_seconds)
