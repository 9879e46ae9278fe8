"""The writer and the reader as other services call them: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import grpc
from google.protobuf.message import Message

from penstock.addresses import WITHOUT_PROXY
from penstock.credentials import Metadata
from penstock.tls import LOOK_SECONDS, TLS, WatchedTls, advice, open_channel
from services import logs

CALL_SECONDS: Final = 10.0
_HEALTH: Final = "/grpc.health.v1.Health/Check"
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


def is_cancelled() -> bool:
    """Return whether this task is cancelled: grpc.aio raises CancelledError at the end of a channel, too."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


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


class ServiceAddress(NamedTuple):
    """Where a service is, and how it is called."""

    address: str
    tls: TLS | None = None
    metadata: Callable[[], Metadata] = tuple  # as whom


class Upstream:
    """One channel to a service; it connects again by itself.

    It goes over to a new channel once the files of its TLS have changed, and logs it if TLS is why none connects.
    """

    def __init__(self, endpoint: ServiceAddress) -> None:
        """Take an endpoint, with the files of its TLS. Raises BadTlsFile."""
        self._endpoint = endpoint
        self._tls = WatchedTls(endpoint.tls)
        self._methods: dict[str, Any] = {}
        self._ending: set[asyncio.Future[None]] = set()
        self._channel = self._open()
        self._watching = asyncio.ensure_future(self._watch())

    def renew(self) -> None:
        """End all calls; make those to come over a new connection."""
        self._replace(None)

    def _open(self) -> grpc.aio.Channel:
        channel: grpc.aio.Channel = open_channel(
            grpc.aio, self._endpoint.address, _OPTIONS, self._tls.loaded
        )
        return channel

    def _replace(self, grace_seconds: float | None) -> None:
        ending = asyncio.ensure_future(self._channel.close(grace_seconds))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        self._channel = self._open()
        self._methods.clear()

    async def _watch(self) -> None:
        said = ""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._tls.look(time.monotonic()):
                self._replace(CALL_SECONDS)
            state = self._channel.get_state(try_to_connect=self._endpoint.tls is not None)
            if state is grpc.ChannelConnectivity.READY:
                said = ""
            elif state is grpc.ChannelConnectivity.TRANSIENT_FAILURE and not said:
                said = await self._why()
                if said:
                    log = logs.get_logger()
                    log.error(
                        "a service cannot be called", address=self._endpoint.address, problem=said
                    )

    async def _why(self) -> str:
        """Return what to do about a connection that fails, "" if TLS is not why."""
        try:
            await self._channel.unary_unary(_HEALTH, None, None)(b"", timeout=LOOK_SECONDS)
        except grpc.aio.AioRpcError as error:
            return advice(error.details() or "", self._endpoint.tls)
        return ""

    def _unary(self, path: str) -> Any:
        """Return the callable for a method, of bytes."""
        found = self._methods.get(path)
        if found is None:
            found = self._methods[path] = self._channel.unary_unary(path, None, None)
        return partial(found, metadata=self._endpoint.metadata())

    def stream(self, path: str) -> Any:
        """Return the callable for a method with streams both ways, of bytes."""
        method = self._channel.stream_stream(path, None, None)
        return partial(method, metadata=self._endpoint.metadata())

    async def answers(self, path: str, request: Message) -> AsyncIterator[bytes]:
        """Yield the answers of a method that streams them; waits for a service that does not answer yet."""
        stream = self._channel.unary_stream(path, None, None)(
            request.SerializeToString(), wait_for_ready=True, metadata=self._endpoint.metadata()
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
        data = request if isinstance(request, bytes) else request.SerializeToString()
        call = self._unary(path)(data, timeout=timeout_s, wait_for_ready=True)
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
        for task in (self._watching, *self._ending):
            task.cancel()
        await asyncio.gather(self._watching, *self._ending, return_exceptions=True)
        await self._channel.close(None)


class WaitingCalls:
    """Calls that wait long at a service, over channels of their own: none of them holds up another call.

    A connection carries so many calls at once, and more wait at the caller.
    """

    def __init__(self, endpoint: ServiceAddress) -> None:
        self._endpoint = endpoint
        self._counts: dict[Upstream, int] = {}  # of calls, by channel

    async def call(self, path: str, request: Message | bytes, **how: Any) -> bytes:
        """Make one call, on the first channel that has room."""
        upstream = self._with_room()
        self._counts[upstream] += 1
        try:
            return await upstream.call(path, request, **how)
        finally:
            self._counts[upstream] -= 1

    async def close(self) -> None:
        """End all calls."""
        for upstream in self._counts:
            await upstream.close()

    def _with_room(self) -> Upstream:
        for upstream, count in self._counts.items():
            if count < CALLS_A_CHANNEL:
                return upstream
        upstream = Upstream(self._endpoint)
        self._counts[upstream] = 0
        return upstream
