"""The ports of a service process, and what they share: metrics, traces, settings that change while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from penstock.v1 import settings_pb2 as pb
from services.accounts.page_guard import page_guard
from services.config.settings import ProcessSettings
from services.metrics.service import ServiceMetrics
from services.rpc.calls import Interceptor
from services.rpc.running_settings import Logged, RunningSettings
from services.rpc.server import Contract, RpcServer
from services.rpc.servicer import Context
from services.traces import open_traces

SETTINGS: Final = pb.DESCRIPTOR.services_by_name["Settings"]


class ServicePorts:
    """A context manager, used on the event loop; ``draining`` is set when its ports take no more calls."""

    def __init__(self, service: str, settings: ProcessSettings) -> None:
        self.draining = asyncio.Event()
        self.metrics = ServiceMetrics(service, settings, page_guard(settings))
        self.settings_contract = Contract(SETTINGS, SettingsServicer(settings))
        self._service = service
        self._settings = settings
        self._traces: Sequence[Interceptor] = ()
        self._open = ExitStack()

    def __enter__(self) -> ServicePorts:
        """Begin to count and to trace. Raises CannotListen, MissingTraces."""
        with ExitStack() as opening:
            self._traces = opening.enter_context(open_traces(self._service, self._settings))
            opening.enter_context(self.metrics)
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def server(
        self,
        contracts: Sequence[Contract],
        interceptors: Sequence[Interceptor],
        *,
        settings: ProcessSettings | None = None,
        ports: int = 1,
    ) -> RpcServer:
        """Return the server of one port, of so many of the process; ``settings`` are its own, if they differ."""
        return RpcServer(
            contracts,
            settings or self._settings,
            self.draining,
            ports=ports,
            interceptors=(*interceptors, *self._traces),
            counts=self.metrics.counts,
            running=self.settings_contract.servicer.running,
        )


class SettingsServicer:
    """The methods of penstock.v1.Settings: they show and change what a process logs, until its next start."""

    def __init__(self, settings: ProcessSettings) -> None:
        self.running = RunningSettings(settings)

    async def get_settings(
        self, _request: pb.GetSettingsRequest, _context: Context
    ) -> pb.RunningSettings:
        """Return what is in force."""
        return pb.RunningSettings(**self.running.logged._asdict())

    async def update_settings(
        self, request: pb.UpdateSettingsRequest, _context: Context
    ) -> pb.RunningSettings:
        """Change what is given."""
        given = {name: getattr(request, name) for name in Logged._fields if request.HasField(name)}
        self.running.change(self.running.logged._replace(**given))
        return pb.RunningSettings(**self.running.logged._asdict())
