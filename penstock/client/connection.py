"""The connection of a client: its settings and channels, and how it runs calls and plans, in both forms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import grpc

from penstock.addresses import (
    ALL_SERVICES,
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    Addresses,
    Service,
)
from penstock.background import AsyncBackground, AsyncWakeUp, Background, WakeUp
from penstock.calls import status
from penstock.calls.call import Attempts, Call, Plan
from penstock.calls.topics import QueueCounts, describe_topic
from penstock.channel import (
    AsyncHome,
    AsyncServiceChannels,
    Home,
    Lane,
    ServiceChannels,
)
from penstock.consuming.handlers import AsyncHandlers, Handlers
from penstock.consuming.in_flight import Answered, InFlightCalls
from penstock.consuming.read_ahead import ReadAhead
from penstock.credentials import given_credentials
from penstock.errors import ClientClosed, PenstockError, Unavailable
from penstock.forms import AsyncClosing, Closing, both, finished
from penstock.proxies import Way, way_to
from penstock.requests import REQUEST_BYTES_MAX
from penstock.retry import RetryPolicy
from penstock.sequences import Sequences
from penstock.tls import TLS
from storage.clock import Clock, SystemClock

T = TypeVar("T")
_READY_POLL_S: Final = 0.05


class ThreadForm:
    """What waits, of threads."""

    channels = ServiceChannels
    wake_up = WakeUp
    background = Background
    handlers = Handlers


class LoopForm:
    """What waits, of an event loop."""

    channels = AsyncServiceChannels
    wake_up = AsyncWakeUp
    background = AsyncBackground
    handlers = AsyncHandlers


class ConnectionCore:
    """Settings, and channels to the three services, each opened when it is first needed."""

    form: type[ThreadForm] | type[LoopForm]

    def __init__(
        self,
        *,
        writer: str = DEFAULT_WRITER,
        reader: str = DEFAULT_READER,
        indexer: str = DEFAULT_INDEXER,
        tls: TLS | None = None,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        clock: Clock | None = None,
        access_key: str = "",
        secret_key: str = "",
    ) -> None:
        self.addresses = Addresses(writer, reader, indexer)
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.request_bytes_max = request_bytes_max
        self.clock = clock or SystemClock()
        self.tls = tls
        self.channels = self.form.channels(
            self.addresses, self.clock, tls, given_credentials(access_key, secret_key)
        )
        self.sequences = Sequences(self.clock)
        self.queue_counts = QueueCounts(self.clock)

    @both
    async def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice does nothing."""
        await self.channels.close()

    @both
    async def wait_ready(
        self, timeout_s: float = 30.0, *, services: Iterable[Service] = ALL_SERVICES
    ) -> None:
        """Wait until the services' own health checks say SERVING; Unavailable after the timeout."""
        deadline_s = self.clock.monotonic() + timeout_s
        for service in services:
            call, problem = status.health(service), "never answered"
            check = call.method.on(self.channels.of(service))
            while True:
                left_s = deadline_s - self.clock.monotonic()
                try:
                    answer = await self.channels.ask(
                        check, call.request, max(0.01, min(left_s, 1)), "calls"
                    )
                    if call.interpret(answer):
                        break
                    problem = "answers, but is not serving"
                except grpc.RpcError as error:
                    if (
                        error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED
                    ):  # which gives no reason
                        problem = error.details() or str(error.code())
                if left_s <= 0:
                    way = self.way_to(service)
                    raise Unavailable(
                        f"the {service} at {self.addresses.of(service)} is not ready{way.proxy}:"
                        f" {problem}{way.advice(problem)}"
                    )
                await self.channels.pause(_READY_POLL_S)

    @abstractmethod
    def _home(self) -> Home | AsyncHome:
        """Return where something that is made now may be used."""

    async def _send(self, call: Call[T] | Plan[T], *, lane: Lane = "calls") -> T:
        """Send a call, again where that is safe, and return what its answer means; or all calls of a plan.

        In the lane of iterators an interrupt (Ctrl-C) of the caller leaves no lock of grpc's held.
        """
        if not isinstance(call, Call):
            return await self._run_plan(call, lane)
        timeout_s = self.timeout_s if call.timeout_s is None else call.timeout_s
        self.channels.allow(timeout_s + call.wait_ms / 1000)
        stub = self.channels.stub(call.method, lane)
        with Attempts(
            call,
            self.retry,
            timeout_s=timeout_s,
            clock=self.clock,
            sequences=self.sequences,
            way_to=self.way_to,
        ) as attempts:
            while True:
                try:
                    response = await self.channels.ask(
                        stub, attempts.request(), attempts.answer_s(), lane
                    )
                except grpc.RpcError as error:
                    await self.channels.pause(attempts.after(error))
                    if attempts.is_silent:
                        self.channels.renew(call.method, stub)
                        stub = self.channels.stub(call.method, lane)
                except ValueError as error:
                    if self.channels.is_closed:  # by another thread, since the stub was there
                        raise ClientClosed("the client was closed") from error
                    raise
                else:
                    return call.interpret(response)

    async def _run_plan(self, plan: Plan[T], lane: Lane) -> T:
        """Run a plan's calls one after the other; what one of them raises is raised in the plan."""
        go_on: Callable[[Any], Call[Any]] = plan.send
        result: Any = None
        while True:
            try:
                call = go_on(result)
            except StopIteration as stop:
                value: T = stop.value
                return value
            try:
                go_on, result = plan.send, await self._send(call, lane=lane)
            except BaseException as error:  # noqa: BLE001  the plan raises it, when it has cleaned up
                go_on, result = plan.throw, error

    def _in_flight(self, take: Callable[[Answered], None]) -> InFlightCalls:
        """Return the calls under way of an iterator; ``take`` gets each that has ended."""
        return InFlightCalls(self.channels, take, self._home(), self.form.wake_up())

    def _read_ahead(self, call: Call[T]) -> ReadAhead[T]:
        """Return the stream of answers to a call."""
        return ReadAhead(self.channels, call, self.form.wake_up(), self.error_of)

    async def _queue_count(self, topic: str) -> int:
        """Return how many queues of a topic take writes; asked for now and then."""
        count = self.queue_counts.known(topic)
        if count is None:
            described = await self._send(describe_topic(topic))
            count = self.queue_counts.learn(topic, described.topic.write_queue_count)
        return count

    queue_count = both(_queue_count)

    def way_to(self, service: Service) -> Way:
        """Return how a service is called, for errors to say."""
        return Way(way_to(self.addresses.of(service)), self.tls)

    def error_of(self, call: Call[Any], error: grpc.RpcError) -> PenstockError:
        """Return the exception for a failed call."""
        return call.error_of(error, self.way_to(call.method.service))


class Connection(ConnectionCore, Closing):
    """A connection that threads share."""

    form = ThreadForm
    channels: ServiceChannels

    def _home(self) -> Home:
        return Home()

    def run(self, call: Call[T] | Plan[T]) -> T:
        """Send a call, again where that is safe, and return what its answer means; or all calls of a plan."""
        return finished(self._send, call)


class AsyncConnection(ConnectionCore, AsyncClosing):
    """A connection of one event loop."""

    form = LoopForm
    channels: AsyncServiceChannels

    def _home(self) -> AsyncHome:
        return self.channels.home

    async def run(self, call: Call[T] | Plan[T]) -> T:
        """Send a call, again where that is safe, and return what its answer means; or all calls of a plan."""
        return await self._send(call)
