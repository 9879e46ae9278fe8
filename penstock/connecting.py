"""What a connection holds and decides, whoever runs its calls; no I/O, nothing awaited."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import grpc

from penstock.addresses import (
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    Addresses,
    Service,
)
from penstock.calls import status
from penstock.calls.call import Attempts, Call
from penstock.channel import READY_POLL_S
from penstock.errors import ClientClosed, RpcError, Unavailable
from penstock.queue_counts import QueueCounts
from penstock.requests import REQUEST_BYTES_MAX
from penstock.retry import RetryPolicy
from penstock.wire import Method
from storage.clock import Clock, SystemClock

ChannelT = TypeVar("ChannelT", grpc.Channel, grpc.aio.Channel)


class Connecting(ABC, Generic[ChannelT]):
    """Settings, and channels to the three services, each opened when it is first needed."""

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
        self._channels: dict[Service, ChannelT] = {}
        self._stubs: dict[str, Any] = {}
        self._queue_counts = QueueCounts(self.clock)
        self._closed = threading.Event()

    def stub(self, method: Method) -> Any:
        """Return grpc's callable for a method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = method.on(self._channel(method.service))
        return stub

    @abstractmethod
    def _open(self, address: str) -> ChannelT:
        """Return a new channel."""

    def _channel(self, service: Service) -> ChannelT:
        with self._lock:
            if self._closed.is_set():
                raise ClientClosed("the client is closed")
            channel = self._channels.get(service)
            if channel is None:
                channel = self._channels[service] = self._open(self.addresses.of(service))
            return channel

    def _leave_channels(self) -> list[ChannelT]:
        """Be closed from here on; return the channels that are open, to be closed by the caller."""
        self._closed.set()
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
            self._stubs.clear()
        return channels

    def _attempts(self, call: Call[Any], timeout_s: float | None) -> Attempts:
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        return Attempts(call, self.retry, timeout_s=timeout_s, clock=self.clock)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClientClosed("the client was closed")


class Readiness:
    """Looks at one service's own health until it says SERVING, or the time is over."""

    def __init__(self, service: Service, address: str, *, deadline_s: float, clock: Clock) -> None:
        self.call = status.health(service)
        self._service = service
        self._address = address
        self._deadline_s = deadline_s
        self._clock = clock
        self._left_s = 0.0
        self._problem = "never answered"

    def timeout_s(self) -> float:
        """Return how long the look that begins now may take."""
        self._left_s = self._deadline_s - self._clock.monotonic()
        return max(0.01, min(self._left_s, 1))

    def is_given(self, answer: Any) -> bool:
        """Whether a look's answer says SERVING."""
        self._problem = "answers, but is not serving"
        return self.call.interpret(answer)

    def failed(self, error: RpcError) -> None:
        """Hear that a look got no answer; one that was cut off tells nothing new."""
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            self._problem = error.details() or str(error.code())

    def pause_s(self) -> float:
        """Return how long to wait before the next look. Raises Unavailable when time was over."""
        if self._left_s <= 0:
            raise Unavailable(
                f"the {self._service} at {self._address} is not ready: {self._problem}"
            )
        return READY_POLL_S
