"""The synchronous connection: runs calls and plans, sleeps, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, Self, TypeVar

import grpc

from penstock.addresses import (
    ALL_SERVICES,
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    Addresses,
    Service,
)
from penstock.calls import status
from penstock.calls.call import Attempts, Call, Plan
from penstock.channel import CHANNEL_OPTIONS, NOT_CONNECTED, READY_POLL_S
from penstock.errors import ClientClosed, Unavailable
from penstock.queue_counts import QueueCounts
from penstock.requests import REQUEST_BYTES_MAX
from penstock.retry import RetryPolicy
from penstock.wire import Method
from storage.clock import Clock, SystemClock

T = TypeVar("T")


class Connection:
    """Channels to the three services, each opened when it is first needed; see `Client`."""

    def __init__(
        self,
        *,
        writer: str = DEFAULT_WRITER,
        reader: str = DEFAULT_READER,
        indexer: str = DEFAULT_INDEXER,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.addresses = Addresses(writer, reader, indexer)
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.request_bytes_max = request_bytes_max
        self.clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._channels: dict[Service, grpc.Channel] = {}
        self._stubs: dict[str, Any] = {}
        self._queue_counts = QueueCounts(self.clock)
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice does nothing."""
        self._closed.set()
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
            self._stubs.clear()
        for channel in channels:
            channel.close()

    def wait_ready(
        self, timeout_s: float = 30.0, *, services: Iterable[Service] = ALL_SERVICES
    ) -> None:
        """Wait until the services' own health checks say SERVING; Unavailable after the timeout."""
        deadline = self.clock.monotonic() + timeout_s
        for service in services:
            call = status.health(service)
            check = call.method.on(self._channel(service))
            problem = "never answered"
            while True:
                left = deadline - self.clock.monotonic()
                try:
                    answer = check(call.request, timeout=max(0.01, min(left, 1)))
                    if call.interpret(answer):
                        break
                    problem = "answers, but is not serving"
                except grpc.RpcError as error:
                    problem = error.details() or str(error.code())
                if left <= 0:
                    address = self.addresses.of(service)
                    raise Unavailable(f"the {service} at {address} is not ready: {problem}")
                self._pause(READY_POLL_S)

    def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send a call, again where that is safe, and return what its answer means."""
        attempts = Attempts(
            call,
            self.retry,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            clock=self.clock,
        )
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

    def stub(self, method: Method) -> Any:
        """Return grpc's callable for a method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = method.on(self._channel(method.service))
        return stub

    def wait_connected(self, service: Service, timeout_s: float) -> bool:
        """Wait for a connection; False if there is none in time. Any answer proves one."""
        call = status.health(service)
        check = call.method.on(self._channel(service))
        try:
            check(call.request, timeout=timeout_s, wait_for_ready=True)
        except grpc.RpcError as error:
            return error.code() not in NOT_CONNECTED
        return True

    def _channel(self, service: Service) -> grpc.Channel:
        with self._lock:
            if self._closed.is_set():
                raise ClientClosed("the client is closed")
            channel = self._channels.get(service)
            if channel is None:
                channel = grpc.insecure_channel(
                    self.addresses.of(service), options=list(CHANNEL_OPTIONS)
                )
                self._channels[service] = channel
            return channel

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise ClientClosed("the client was closed")
