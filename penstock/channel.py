"""Channels to the three services, in grpc's two kinds: what the two connections do not share.

Settings of all channels stand here, and whatever waits in one way in a thread and in another in an
event loop: `ServiceChannels` and `AsyncServiceChannels` have the same methods.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import grpc

from penstock.addresses import Addresses, Service
from penstock.errors import ClientClosed
from penstock.wire import Method

NOT_CONNECTED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)
STREAM_ENDED: Final = (grpc.RpcError, asyncio.CancelledError)  # what iterating over one raises
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
SILENT_CHANNELS_MAX: Final = 4
ChannelT = TypeVar("ChannelT", grpc.Channel, grpc.aio.Channel)


class _OpenChannels(ABC, Generic[ChannelT]):
    """One channel a service, opened when it is first needed."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self._lock = threading.Lock()
        self._channels: dict[Service, ChannelT] = {}
        self._stubs: dict[str, Any] = {}
        self._renewed: set[Service] = set()
        self._silent: list[ChannelT] = []  # in which calls may be under way, the oldest first
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
            if self._closed.is_set():
                raise ClientClosed("the client is closed")
            channel = self._channels.get(service)
            if channel is None:
                options = list(CHANNEL_OPTIONS)
                if service in self._renewed:
                    options.append(_OWN_CONNECTION)
                channel = self._open(self.addresses.of(service), options)
                self._channels[service] = channel
            return channel

    def renew(self, service: Service) -> None:
        """Open another channel to a service with its next call; calls under way go on, those of some channels ago end."""
        with self._lock:
            self._renewed.add(service)
            channel = self._channels.pop(service, None)
            self._stubs.clear()
            if channel is not None:
                self._silent.append(channel)
            ended = self._silent[:-SILENT_CHANNELS_MAX]
            del self._silent[: len(ended)]
        for channel in ended:
            self._end(channel)

    def stub(self, method: Method) -> Any:
        """Return grpc's callable for a method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = method.on(self.of(method.service))
        return stub

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
            channels += self._silent
            self._channels.clear()
            self._silent.clear()
            self._stubs.clear()
        return channels


class ServiceChannels(_OpenChannels[grpc.Channel]):
    """Channels of grpc's synchronous kind, shared by threads."""

    def close(self) -> None:
        """Close the channels; calls under way fail. Closing twice does nothing."""
        for channel in self._refuse():
            channel.close()

    def pause(self, seconds: float) -> None:
        """Wait; raises ClientClosed as soon as the channels are closed."""
        self._closed.wait(seconds)
        self.check_open()

    def send_stream(self, method: Method, requests: Iterator[bytes], timeout_s: float) -> Any:
        """Send a stream of requests and return its one answer."""
        return self.stub(method)(requests, timeout=timeout_s)

    def _end(self, channel: grpc.Channel) -> None:
        channel.close()

    def _open(self, address: str, options: list[tuple[str, int]]) -> grpc.Channel:
        return grpc.insecure_channel(address, options=options)


class AsyncServiceChannels(_OpenChannels[grpc.aio.Channel]):
    """Channels of grpc.aio, for one event loop."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__(addresses)
        self._streaming = ServiceChannels(addresses)
        self._ending: set[asyncio.Future[None]] = set()

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
        return grpc.aio.insecure_channel(address, options=options)
