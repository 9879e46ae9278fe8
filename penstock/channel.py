"""Channels to the three services, and calls over them: waited for by a thread, or by a task of an event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Literal, get_args

import grpc

from penstock.addresses import Addresses, Service, channel_options
from penstock.call_thread import CallThread
from penstock.credentials import Credentials, signed
from penstock.errors import ClientClosed, UsedElsewhere
from penstock.tls import TLS, WatchedTls, open_channel
from penstock.wire import Method
from storage.clock import Clock

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
Lane = Literal["calls", "iterators"]
"""What a channel is for: calls that are waited for where they are made, or those of iterators and producers.

Channels of one address share their connection until it is renewed, and nothing of grpc's Python part: an
interrupt (Ctrl-C) within a call may leave a lock of its channel held.
"""
LANES: Final[tuple[Lane, ...]] = get_args(Lane)


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


class ServiceChannels:
    """One channel a service and lane, opened when it is first needed; shared by threads.

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
        self._channels: dict[tuple[Service, Lane], grpc.Channel] = {}
        self._stubs: dict[tuple[Service, Lane], dict[str, Any]] = {}
        self._renewed: set[Service] = set()
        self._retired: list[tuple[float, grpc.Channel]] = []  # with when they were, in order
        self._closed = threading.Event()
        self.call_thread = CallThread()

    @property
    def is_closed(self) -> bool:
        """Whether the channels were closed."""
        return self._closed.is_set()

    def check_open(self) -> None:
        """Raise ClientClosed if the channels were closed."""
        if self._closed.is_set():
            raise ClientClosed("the client was closed")

    def of(self, service: Service) -> grpc.Channel:
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
            channel.close()

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
            channel.close()

    def _ended(self, now: float) -> list[grpc.Channel]:
        """Take out the retired channels that can have no call under way any more, under the lock."""
        unused = now - max(RETIRED_S_MIN, 2 * self._call_s_max)
        ended = [channel for retired_at, channel in self._retired if retired_at <= unused]
        del self._retired[: len(ended)]
        return ended

    def _current(self, service: Service, lane: Lane) -> grpc.Channel:
        """Return the channel to a service, under the lock."""
        if self._closed.is_set():
            raise ClientClosed("the client is closed")
        channel = self._channels.get((service, lane))
        if channel is None:
            address: str = self.addresses.of(service)
            options = [*CHANNEL_OPTIONS, *channel_options(address)]
            if service in self._renewed:
                options.append(_OWN_CONNECTION)
            channel = open_channel(grpc, address, options, self._watched_tls.loaded)
            self._channels[service, lane] = channel
        return channel

    async def close(self) -> None:
        """Close the channels; calls under way fail. Closing twice does nothing."""
        self._closed.set()
        with self._lock:
            channels = list(self._channels.values())
            channels += [channel for _, channel in self._retired]
            self._channels.clear()
            self._retired.clear()
            self._stubs.clear()
        for channel in channels:
            channel.close()

    async def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed as soon as the channels are closed."""
        self._closed.wait(seconds)
        self.check_open()

    async def ask(self, stub: Any, request: Any, timeout_s: float, lane: Lane) -> Any:
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
        return _result(outcome)

    async def send_stream(self, method: Method, requests: Iterator[bytes], timeout_s: float) -> Any:
        """Send a stream of requests and return its one answer."""
        self.allow(timeout_s)
        return self.stub(method)(requests, timeout=timeout_s)


class AsyncServiceChannels(ServiceChannels):
    """The same for an event loop, which is woken by the threads that bring answers."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.home = AsyncHome()

    async def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed if the channels were closed meanwhile."""
        await asyncio.sleep(seconds)
        self.check_open()

    async def ask(self, stub: Any, request: Any, timeout_s: float, _: Lane) -> Any:
        """Return the answer to a unary call. Raises grpc's RpcError, UsedElsewhere in another event loop."""
        self.home.check()
        return await _outcome(stub.future(request, timeout=timeout_s))

    async def send_stream(self, method: Method, requests: Iterator[bytes], timeout_s: float) -> Any:
        """Send a stream of requests, iterated in a thread of grpc's, and return its one answer."""
        self.home.check()
        self.allow(timeout_s)
        return await _outcome(self.stub(method).future(requests, timeout=timeout_s))


async def _outcome(call: Any) -> Any:
    """Return the answer to a call, which is cancelled with the task that waits for it."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # nobody waits in a loop that is closed
            loop.call_soon_threadsafe(ended.set)

    call.add_done_callback(wake)
    try:
        await ended.wait()
        return _result(call)
    finally:
        call.cancel()


def _result(call: Any) -> Any:
    try:
        return call.result()
    except grpc.FutureCancelledError as error:
        raise ClientClosed("the client was closed") from error
