"""A server on grpc.aio's public interface, for a grpcio whose core is not what ``services.rpc.core`` knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, cast

import grpc

from services import loops
from services.rpc.served_call import CallAborted, CallEnded, Handler, Metadata, ServedCall

CANCEL_SECONDS: Final = 5.0  # for handlers to end once their calls are cancelled


class AioCall(ServedCall):
    """A call of grpc.aio; :class:`ServedCall` says what its methods do."""

    __slots__ = ("__weakref__", "_context", "_metadata", "_peer", "_task")

    def __init__(self, context: Any) -> None:
        """Take a call; made in the task of its handler."""
        self._context = context
        self._task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._metadata: Metadata | None = None
        self._peer: str | None = None

    def invocation_metadata(self) -> Metadata:
        if self._metadata is None:
            self._metadata = tuple(self._context.invocation_metadata())
        return self._metadata

    def cancelled(self) -> bool:
        return self._task.cancelling() > 0

    def time_remaining(self) -> float | None:
        remaining: float | None = self._context.time_remaining()
        return remaining

    def peer(self) -> str:
        if self._peer is None:
            self._peer = str(self._context.peer())
        return self._peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        return dict(self._context.auth_context())

    async def message(self) -> Any:
        """Return the next message, grpc's EOF after the last one."""
        return await _done(self._context.read())

    async def read_each(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        while True:  # a read goes on when its reader is cancelled
            data = await loops.shielded(asyncio.ensure_future(self.message()))
            if not isinstance(data, bytes):
                await asyncio.sleep(0)  # of a call that broke off the end comes a moment later
                return
            wanted = take(data)
            if wanted is not None:
                await wanted

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        await _done(self._context.send_initial_metadata(tuple(metadata)))

    async def write(self, answer: bytes) -> None:
        await _done(self._context.write(answer))

    async def write_all(self, answers: Iterable[bytes]) -> None:
        for answer in answers:
            await self.write(answer)

    def cancel(self) -> None:
        """Cancel its handler; a caller who takes nothing is sent the status when it does."""
        self._task.cancel()

    async def end(
        self, code: grpc.StatusCode, message: str, trailing_metadata: Metadata = ()
    ) -> None:
        """Send the status, unless one is sent."""
        if self._context.done():
            return
        text = message.encode(errors="replace").decode()
        with suppress(grpc.aio.BaseError):  # which it raises when the status is sent, too
            await self._context.abort(code, text, tuple(trailing_metadata))


async def _done(operation: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await operation
    except grpc.aio.BaseError:
        raise CallEnded from None


class AioServer(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # at run time it takes none
    """Serves handlers by the paths of their methods; all methods run on the event loop.

    Every method is one of gRPC's streams both ways: the bytes of a single message are the same.
    """

    def __init__(
        self, handlers: Mapping[str, Handler], options: Sequence[tuple[str, int]], *, calls_max: int
    ) -> None:
        """Serve ``handlers``; more calls at once than ``calls_max`` are refused."""
        self._methods = {
            path: grpc.stream_stream_rpc_method_handler(self._serving(handler))
            for path, handler in handlers.items()
        }
        self._calls_max = calls_max
        self._count = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._server = grpc.aio.server(handlers=(self,), options=tuple(options))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return what serves a method, None without one: gRPC asks."""
        return self._methods.get(handler_call_details.method)

    def add_port(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address; return the port. Raises RuntimeError if that is not possible."""
        if credentials is None:
            return self._server.add_insecure_port(address)
        return self._server.add_secure_port(address, credentials)

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        await self._server.stop(grace_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SECONDS):
                await self._is_idle.wait()

    def _serving(self, handler: Handler) -> Callable[..., Coroutine[Any, Any, None]]:
        async def serve(_requests: Any, context: Any) -> None:
            call = AioCall(context)
            self._count += 1
            self._is_idle.clear()
            try:
                if self._count > self._calls_max:
                    code = grpc.StatusCode.RESOURCE_EXHAUSTED
                    await call.end(code, "Concurrent RPC limit exceeded!")
                else:
                    await _serve(handler, call)
            finally:
                self._count -= 1
                if not self._count:
                    self._is_idle.set()

        return serve


async def _serve(handler: Handler, call: AioCall) -> None:
    try:
        if handler.takes_stream:
            answer = await handler.run(call)
        elif isinstance(request := await call.message(), bytes):
            answer = await handler.run(request, call)
        else:
            await call.end(grpc.StatusCode.INVALID_ARGUMENT, "the call has no request")
            return
        if answer is not None:
            await call.write(answer)
    except CallAborted as aborted:
        await call.end(aborted.code, aborted.message, aborted.trailing_metadata)
    except (CallEnded, asyncio.CancelledError):
        await call.end(grpc.StatusCode.CANCELLED, "cancelled")
