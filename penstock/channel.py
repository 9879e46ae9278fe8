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
ChannelT = TypeVar("ChannelT", grpc.Channel, grpc.aio.Channel)


class _OpenChannels(ABC, Generic[ChannelT]):
    """One channel a service, opened when it is first needed."""

    def __init__(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self._lock = threading.Lock()
        self._channels: dict[Service, ChannelT] = {}
        self._stubs: dict[str, Any] = {}
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
                channel = self._channels[service] = self._open(self.addresses.of(service))
            return channel

    def stub(self, method: Method) -> Any:
        """Return grpc's callable for a method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = method.on(self.of(method.service))
        return stub

    @abstractmethod
    def _open(self, address: str) -> ChannelT:
        """Return a new channel."""

    def _refuse(self) -> list[ChannelT]:
        """Be closed from here on; return the channels that are open, for the caller to close."""
        self._closed.set()
        with self._lock:
            channels = list(self._channels.values())
            self._channels.clear()
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

    def _open(self, address: str) -> grpc.Channel:
        return grpc.insecure_channel(address, options=list(CHANNEL_OPTIONS))


class AsyncServiceChannels(_OpenChannels[grpc.aio.Channel]):
    """Channels of grpc.aio, for one event loop."""

    def __init__(self, addresses: Addresses) -> None:
        super().__init__(addresses)
        self._streaming = ServiceChannels(addresses)

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

    def _open(self, address: str) -> grpc.aio.Channel:
        return grpc.aio.insecure_channel(address, options=list(CHANNEL_OPTIONS))
