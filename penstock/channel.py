"""Channels to the three services, in grpc's two kinds: the part that the two connections do not share.

The module has the settings of all channels, and everything that waits in one way in a thread and in another
in an event loop: `ServiceChannels` and `AsyncServiceChannels` have the same methods.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import grpc

from penstock.addresses import Addresses, Service, channel_options
from penstock.call_thread import CallThread
from penstock.credentials import Credentials, signed
from penstock.errors import CANCELLED_HERE, ClientClosed, UsedElsewhere
from penstock.tls import TLS, WatchedTls, open_channel
from penstock.wire import Method
from storage.clock import Clock

CALL_FAILED: Final = (grpc.RpcError, asyncio.CancelledError)  # the second with a closed channel too
CONNECT_TIMEOUT_MS: Final = 20_000  # calls that wait for a connection end by their own time-outs
CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # How long one attempt to connect may take, whatever its name says. A refused one ends at once,
    # and the next follows after the pause of the other two.
    ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)
_OWN_CONNECTION: Final = ("grpc.use_local_subchannel_pool", 1)  # shared with no other channel
RETIRED_CHANNELS_MAX: Final = 8  # two lanes, four times
RETIRED_S_MIN: Final = 60.0  # how long a retired channel stays open at least
_log = logging.getLogger(__name__)
ChannelT = TypeVar("ChannelT", grpc.Channel, grpc.aio.Channel)
Lane = Literal["calls", "iterators"]
"""What a channel is for: calls that are waited for where they are made, or those of iterators and producers.

Channels of one address share their connection until it is renewed, and nothing of grpc's Python part: an
interrupt (Ctrl-C) within a call may leave a lock of its channel held.
"""
LANES: Final[tuple[Lane, ...]] = get_args(Lane)


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled: grpc.aio raises CancelledError for closed channels
    too.
    """
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def is_cancellation(error: BaseException) -> bool:
    """Whether the task itself was cancelled, and not a call of it."""
    return isinstance(error, asyncio.CancelledError) and is_cancelled()


def failure_of(error: BaseException) -> grpc.RpcError:
    """Return what a call failed with; raises the error if the task that made the call is being cancelled."""
    if isinstance(error, grpc.RpcError):
        return error
    if is_cancelled():
        raise error
    metadata = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(
        grpc.StatusCode.CANCELLED, metadata, metadata, CANCELLED_HERE[1], None
    )


class Home:
    """The process where something was made."""

    def __init__(self) -> None:
        self._process_id = os.getpid()

    def check(self) -> None:
        """Raise UsedElsewhere in a process that was forked since."""
        if os.getpid() != self._process_id:
            raise UsedElsewhere("it was made before the process was forked: make another one here")


class AsyncHome:
    """The event loop where something was used first."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise UsedElsewhere in another event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif loop is not self._loop:
            raise UsedElsewhere(
                "it was used in another event loop before: make another client here"
            )


class _OpenChannels(ABC, Generic[ChannelT]):
    """One channel a service and lane, opened when it is first needed.

    A channel that `renew` retires stays open for the calls under way on it: twice the longest time that any
    call has had, and 60 s at least.
    """

    def __init__(
        self,
        addresses: Addresses,
        clock: Clock,
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self.addresses = addresses
        self.tls = tls
        self._watched_tls = WatchedTls(tls)
        self._credentials = credentials
        self._clock = clock
        self._call_s_max = 0.0
        self._lock = threading.Lock()
        self._channels: dict[tuple[Service, Lane], ChannelT] = {}
        self._stubs: dict[tuple[Service, Lane], dict[str, Any]] = {}
        self._renewed: set[Service] = set()
        self._retired: list[tuple[float, ChannelT]] = []  # with when they were, the oldest first
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the channels were closed."""
        return self._closed.is_set()

    def check_open(self) -> None:
        """Raise ClientClosed if the channels were closed."""
        if self._closed.is_set():
            raise ClientClosed("the client was closed")

    def of(self, service: Service) -> ChannelT:
        """Return the channel to a service."""
        with self._lock:
            return self._current(service, "calls")

    def allow(self, call_s: float) -> None:
        """Take note of how long a call may be under way."""
        self._call_s_max = max(self._call_s_max, call_s)

    def renew(self, method: Method, failed_stub: Any) -> None:
        """Move calls to a method's service to a new connection if ``failed_stub`` is of one that there is.

        That one may be dead. Calls under way go on. Nothing is done while as many as RETIRED_CHANNELS_MAX may
        have calls under way.
        """
        now, service = self._clock.monotonic(), method.service
        with self._lock:
            stubs = [self._stubs.get((service, lane), {}) for lane in LANES]
            if all(each.get(method.path) is not failed_stub for each in stubs):
                return
            ended = self._ended(now)
            if len(self._retired) < RETIRED_CHANNELS_MAX:
                self._renewed.add(service)
                for lane in LANES:  # the connection of both may be dead
                    self._stubs.pop((service, lane), None)
                    if (channel := self._channels.pop((service, lane), None)) is not None:
                        self._retired.append((now, channel))
        for channel in ended:
            self._end(channel)

    def stub(self, method: Method, lane: Lane = "calls") -> Any:
        """Return grpc's callable for a method."""
        if self.tls is not None:
            self._take_up_files()
        with self._lock:
            stubs = self._stubs.setdefault((method.service, lane), {})
            stub = stubs.get(method.path)
            if stub is None:
                stub = method.on(self._current(method.service, lane))
                stub = stubs[method.path] = signed(stub, self._credentials)
            return stub

    def _take_up_files(self) -> None:
        """Retire all channels if the files of TLS have changed."""
        now = self._clock.monotonic()
        with self._lock:
            if not self._watched_tls.look(now):
                return
            ended = self._ended(now)
            self._retired += [(now, channel) for channel in self._channels.values()]
            self._channels.clear()
            self._stubs.clear()
        for channel in ended:
            self._end(channel)

    def _ended(self, now: float) -> list[ChannelT]:
        """Take out the retired channels that can have no call under way any more, under the lock."""
        unused = now - max(RETIRED_S_MIN, 2 * self._call_s_max)
        ended = [channel for retired_at, channel in self._retired if retired_at <= unused]
        del self._retired[: len(ended)]
        return ended

    def _current(self, service: Service, lane: Lane) -> ChannelT:
        """Return the channel to a service, under the lock."""
        if self._closed.is_set():
            raise ClientClosed("the client is closed")
        channel = self._channels.get((service, lane))
        if channel is None:
            address: str = self.addresses.of(service)
            options = [*CHANNEL_OPTIONS, *channel_options(address)]
            if service in self._renewed:
                options.append(_OWN_CONNECTION)
            channel = self._open(address, options)
            self._channels[service, lane] = channel
        return channel

    @abstractmethod
    def _open(self, address: str, options: list[tuple[str, int]]) -> ChannelT:
        """Return a new channel."""

    @abstractmethod
    def _end(self, channel: ChannelT) -> None:
        """Close a channel; does not wait."""

    def _refuse(self) -> list[ChannelT]:
        """Be closed from here on; return the channels that are open, for the caller to close."""
        self._closed.set()
        with self._lock:
            channels = list(self._channels.values())
            channels += [channel for _, channel in self._retired]
            self._channels.clear()
            self._retired.clear()
            self._stubs.clear()
        return channels


class ServiceChannels(_OpenChannels[grpc.Channel]):
    """Channels of grpc's synchronous kind, shared by threads."""

    def __init__(
        self,
        addresses: Addresses,
        clock: Clock,
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(addresses, clock, tls, credentials)
        self.call_thread = CallThread()

    def close(self) -> None:
        """Close the channels; calls under way fail. Closing twice does nothing."""
        for channel in self._refuse():
            channel.close()

    def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed as soon as the channels are closed."""
        self._closed.wait(seconds)
        self.check_open()

    def ask(self, stub: Any, request: Any, timeout_s: float, lane: Lane) -> Any:
        """Return the answer to a unary call; the call thread makes that of an iterator.

        Raises grpc's RpcError; ValueError or ClientClosed where the channels were closed.
        """
        if lane == "calls" or sys.is_finalizing():
            return stub(request, timeout=timeout_s)
        outcomes: SimpleQueue[Any] = SimpleQueue()

        def send() -> None:
            try:
                stub.future(request, timeout=timeout_s).add_done_callback(outcomes.put)
            except Exception as error:  # noqa: BLE001  the caller raises it
                outcomes.put(error)

        self.call_thread.do(send)
        outcome = outcomes.get()
        if not isinstance(outcome, grpc.Future):
            raise outcome
        try:
            return outcome.result()
        except grpc.FutureCancelledError as error:
            raise ClientClosed("the client was closed") from error

    def send_stream(self, method: Method, requests: Iterator[bytes], timeout_s: float) -> Any:
        """Send a stream of requests and return its one answer."""
        self.allow(timeout_s)
        return self.stub(method)(requests, timeout=timeout_s)

    def _end(self, channel: grpc.Channel) -> None:
        channel.close()

    def _open(self, address: str, options: list[tuple[str, int]]) -> grpc.Channel:
        channel: grpc.Channel = open_channel(grpc, address, options, self._watched_tls.loaded)
        return channel


class AsyncServiceChannels(_OpenChannels[grpc.aio.Channel]):
    """Channels of grpc.aio, for one event loop."""

    def __init__(
        self,
        addresses: Addresses,
        clock: Clock,
        tls: TLS | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        super().__init__(addresses, clock, tls, credentials)
        self._home = AsyncHome()
        self._streaming = ServiceChannels(addresses, clock, tls, credentials)
        self._ending: set[asyncio.Future[None]] = set()

    def of(self, service: Service) -> grpc.aio.Channel:
        """Return the channel to a service. Raises UsedElsewhere in another event loop."""
        self._home.check()
        return super().of(service)

    def stub(self, method: Method, lane: Lane = "calls") -> Any:
        """Return grpc's callable for a method. Raises UsedElsewhere in another event loop."""
        self._home.check()
        return super().stub(method, lane)

    async def close(self) -> None:
        """Close the channels; calls under way fail. Closing twice does nothing."""
        channels = self._refuse()
        self._streaming.close()
        for channel in channels:
            await channel.close(None)

    async def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed if the channels were closed meanwhile."""
        await asyncio.sleep(seconds)
        self.check_open()

    async def ask(self, stub: Any, request: Any, timeout_s: float, _: Lane) -> Any:
        """Return the answer to a unary call. Raises grpc's RpcError."""
        return await stub(request, timeout=timeout_s)

    async def send_stream(self, method: Method, requests: Iterator[bytes], timeout_s: float) -> Any:
        """Send a stream of requests and return its one answer.

        The requests are iterated in a thread of grpc's, over a channel of its synchronous kind:
        grpc.aio says "Internal error" in place of a refusal that comes between requests.
        """
        call = self._streaming.stub(method).future(requests, timeout=timeout_s)
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # nobody waits in a loop that is closed
                loop.call_soon_threadsafe(ended.set)

        call.add_done_callback(wake)
        try:
            await ended.wait()
            return call.result()
        finally:
            call.cancel()

    def _end(self, channel: grpc.aio.Channel) -> None:
        ending = asyncio.ensure_future(channel.close(None))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _open(self, address: str, options: list[tuple[str, int]]) -> grpc.aio.Channel:
        channel: grpc.aio.Channel = open_channel(
            grpc.aio, address, options, self._watched_tls.loaded
        )
        return channel
