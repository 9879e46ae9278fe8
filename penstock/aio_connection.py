"""The asyncio connection: what `Connection` does, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Self, TypeVar

import grpc

from penstock.addresses import ALL_SERVICES, Service
from penstock.calls import status
from penstock.calls.call import Call, Plan
from penstock.channel import CHANNEL_OPTIONS, NOT_CONNECTED
from penstock.connecting import Connecting, Readiness
from penstock.errors import ClientClosed
from penstock.wire import Method

T = TypeVar("T")


class AsyncConnection(Connecting[grpc.aio.Channel]):
    """Channels to the three services, each opened when it is first needed; see `AsyncClient`."""

    _stage_channel: grpc.Channel | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice does nothing."""
        channels = self._leave_channels()
        if self._stage_channel is not None:
            self._stage_channel.close()
        for channel in channels:
            await channel.close(None)

    async def wait_ready(
        self, timeout_s: float = 30.0, *, services: Iterable[Service] = ALL_SERVICES
    ) -> None:
        """Wait until the services' own health checks say SERVING; Unavailable after the timeout."""
        deadline_s = self.clock.monotonic() + timeout_s
        for service in services:
            ready = Readiness(
                service, self.addresses.of(service), deadline_s=deadline_s, clock=self.clock
            )
            check = ready.call.method.on(self._channel(service))
            while True:
                try:
                    if ready.is_given(await check(ready.call.request, timeout=ready.timeout_s())):
                        break
                except grpc.aio.AioRpcError as error:
                    ready.failed(error)
                await self._pause(ready.pause_s())

    async def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send a call, again where that is safe, and return what its answer means."""
        attempts = self._attempts(call, timeout_s)
        stub = self.stub(call.method)
        while True:
            try:
                response = await stub(call.request, timeout=attempts.remaining_s())
            except grpc.aio.AioRpcError as error:
                await self._pause(attempts.after(error))
            else:
                return call.interpret(response)

    async def run_plan(self, plan: Plan[T], *, timeout_s: float | None = None) -> T:
        """Run a plan's calls one after the other and return its value."""
        result: Any = None
        while True:
            try:
                call = plan.send(result)
            except StopIteration as stop:
                value: T = stop.value
                return value
            result = await self.run(call, timeout_s=timeout_s)

    def request_stream(self, method: Method) -> Any:
        """Return grpc's callable, of its synchronous kind, for a stream of requests and one answer.

        That of grpc.aio says "Internal error" in place of a refusal that comes between requests.
        """
        if self._closed.is_set():
            raise ClientClosed("the client is closed")
        if self._stage_channel is None:
            self._stage_channel = grpc.insecure_channel(
                self.addresses.of(method.service), options=list(CHANNEL_OPTIONS)
            )
        return method.on(self._stage_channel)

    async def wait_connected(self, service: Service, timeout_s: float) -> bool:
        """Wait for a connection; False if there is none in time. Any answer proves one."""
        call = status.health(service)
        check = call.method.on(self._channel(service))
        try:
            await check(call.request, timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            return error.code() not in NOT_CONNECTED
        return True

    def _open(self, address: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._check_open()
