"""The writer and the reader as other services call them: bytes in, bytes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc
from google.protobuf.message import Message

from penstock.addresses import WITHOUT_PROXY

CALL_SECONDS: Final = 10.0
CALLS_A_CHANNEL: Final = 1_000  # a service takes 1,024 of a connection
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
    WITHOUT_PROXY,
]


def request_bytes(request: Message | bytes) -> bytes:
    """Return a request as it goes to a service."""
    return request if isinstance(request, bytes) else request.SerializeToString()


class CalledService(Protocol):
    """A service that is called, in another process or in this one (``services.rpc.in_process``)."""

    async def call(
        self,
        path: str,
        request: Message | bytes,
        *,
        timeout_s: float = CALL_SECONDS,
        unwanted: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Make one call. Raises grpc.aio.AioRpcError."""
        ...

    async def close(self) -> None:
        """End all calls."""
        ...


class CheckingWriter(CalledService, Protocol):
    """The writer, whose checks of transactions are a stream."""

    def answers(self, path: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a method that streams them. Raises grpc.aio.AioRpcError."""
        ...


class Upstream:
    """One channel to a service; it connects again by itself."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._methods: dict[str, Any] = {}
        self._ending: set[asyncio.Future[None]] = set()

    def renew(self) -> None:
        """End all calls; make those to come over a new connection."""
        ending = asyncio.ensure_future(self._channel.close(None))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        self._channel = grpc.aio.insecure_channel(self._address, options=_OPTIONS)
        self._methods.clear()

    def unary(self, path: str) -> Any:
        """Return the callable for a method, of bytes."""
        found = self._methods.get(path)
        if found is None:
            found = self._methods[path] = self._channel.unary_unary(path, None, None)
        return found

    def stream(self, path: str) -> Any:
        """Return the callable for a method with streams both ways, of bytes."""
        return self._channel.stream_stream(path, None, None)

    async def answers(self, path: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a method that streams them; waits for a service that does not answer yet."""
        stream = self._channel.unary_stream(path, None, None)(
            request.SerializeToString(), wait_for_ready=True
        )
        try:
            async for answer in stream:
                yield answer
        finally:
            stream.cancel()

    async def call(
        self,
        path: str,
        request: Message | bytes,
        *,
        timeout_s: float = CALL_SECONDS,
        unwanted: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Make one call; waits for a service that does not answer yet.

        ``unwanted`` is called with an answer that came when the caller was cancelled.
        """
        call = self.unary(path)(request_bytes(request), timeout=timeout_s, wait_for_ready=True)
        try:
            answer: bytes = await call
        except asyncio.CancelledError:
            if unwanted is not None and call.done() and not call.cancelled():
                with suppress(grpc.aio.AioRpcError):
                    unwanted(await call)
            raise
        return answer

    async def close(self) -> None:
        """End all calls."""
        for ending in self._ending:
            ending.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self._channel.close(None)


class WaitingCalls:
    """Calls that wait long at a service, over channels of their own: none of them holds up another call.

    A connection carries so many calls at once, and more wait at the caller.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._channels: list[tuple[Upstream, int]] = []

    async def call(
        self,
        path: str,
        request: Message | bytes,
        *,
        timeout_s: float = CALL_SECONDS,
        unwanted: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Make one call, on the first channel that has room."""
        place = self._place()
        upstream, count = self._channels[place]
        self._channels[place] = upstream, count + 1
        try:
            return await upstream.call(path, request, timeout_s=timeout_s, unwanted=unwanted)
        finally:
            upstream, count = self._channels[place]
            self._channels[place] = upstream, count - 1

    async def close(self) -> None:
        """End all calls."""
        for upstream, _ in self._channels:
            await upstream.close()

    def _place(self) -> int:
        for place, (_, count) in enumerate(self._channels):
            if count < CALLS_A_CHANNEL:
                return place
        self._channels.append((Upstream(self._address), 0))
        return len(self._channels) - 1
