"""The synchronous connection: runs calls and plans, sleeps, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self, TypeVar

import grpc

from penstock.addresses import ALL_SERVICES, Service
from penstock.calls import status
from penstock.calls.call import Call, Plan
from penstock.channel import CHANNEL_OPTIONS, NOT_CONNECTED
from penstock.connecting import Connecting, Readiness
from penstock.errors import ClientClosed

T = TypeVar("T")


class Connection(Connecting[grpc.Channel]):
    """Channels to the three services, each opened when it is first needed; see `Client`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice does nothing."""
        for channel in self._leave_channels():
            channel.close()

    def wait_ready(
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
                    if ready.is_given(check(ready.call.request, timeout=ready.timeout_s())):
                        break
                except grpc.RpcError as error:
                    ready.failed(error)
                self._pause(ready.pause_s())

    def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send a call, again where that is safe, and return what its answer means."""
        attempts = self._attempts(call, timeout_s)
        stub = self.stub(call.method)
        while True:
            try:
                response = stub(call.request, timeout=attempts.remaining_s())
            except grpc.RpcError as error:
                self._pause(attempts.after(error))
            except ValueError as error:
                if self._closed.is_set():  # by another thread, since the stub was there
                    raise ClientClosed("the client was closed") from error
                raise
            else:
                return call.interpret(response)

    def run_plan(self, plan: Plan[T], *, timeout_s: float | None = None) -> T:
        """Run a plan's calls one after the other and return its value."""
        result: Any = None
        while True:
            try:
                call = plan.send(result)
            except StopIteration as stop:
                value: T = stop.value
                return value
            result = self.run(call, timeout_s=timeout_s)

    def wait_connected(self, service: Service, timeout_s: float) -> bool:
        """Wait for a connection; False if there is none in time. Any answer proves one."""
        call = status.health(service)
        check = call.method.on(self._channel(service))
        try:
            check(call.request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() not in NOT_CONNECTED
        return True

    def _open(self, address: str) -> grpc.Channel:
        return grpc.insecure_channel(address, options=list(CHANNEL_OPTIONS))

    def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)
        self._check_open()
