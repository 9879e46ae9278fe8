"""A server on gRPC's core: ports, the calls that come, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import grpc

from services.rpc.core import cygrpc
from services.rpc.core.call import CoreCall, LateWatch
from services.rpc.core.completions import Completions
from services.rpc.served_call import Handler

ANNOUNCED_MAX: Final = 32  # calls that come in one turn of the event loop; more have the next one
CANCEL_SECONDS: Final = 5.0  # for calls to end once they are cancelled
CLOSE_SECONDS: Final = 1.0  # for connections to close once their calls have ended


class CoreServer:
    """Serves handlers by the paths of their methods; all methods run on the event loop."""

    def __init__(
        self, handlers: Mapping[str, Handler], options: Sequence[tuple[str, int]], *, calls_max: int
    ) -> None:
        """Serve ``handlers``; more calls at once than ``calls_max`` are refused."""
        self._handlers = {path.encode(): handler for path, handler in handlers.items()}
        self._calls_max = calls_max
        self._count = 0
        self._loop = asyncio.get_running_loop()
        self._server = cygrpc.Server(tuple(options), False)
        self._completions = Completions()
        self._late_watch = LateWatch()
        self._server.register_completion_queue(self._completions.queue)
        self._is_stopping = False
        self._is_shut_down = self._loop.create_future()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    def add_port(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen on an address; return the port. Raises RuntimeError if that is not possible."""
        place = address.encode()
        if credentials is None:
            port = self._server.add_http2_port(place)
        else:
            port = self._server.add_http2_port(place, credentials._credentials)  # type: ignore[attr-defined]
        if not port:
            raise RuntimeError(f"cannot listen on {address}")
        return int(port)

    async def start(self) -> None:
        """Take calls."""
        self._server.start()
        for _ in range(ANNOUNCED_MAX):
            self._await_call()

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, let those under way end within the grace, then cancel them."""
        if self._is_stopping:
            await self._is_idle.wait()
            return
        self._is_stopping = True
        self._server.shutdown(self._completions.queue, self._shut_down)
        if not await self._idle_within(grace_seconds):
            self._server.cancel_all_calls()
            await self._idle_within(CANCEL_SECONDS)
        await asyncio.wait((self._is_shut_down,), timeout=CLOSE_SECONDS)
        self._server.cancel_all_calls()
        await self._is_shut_down
        self._server.destroy()
        await self._completions.close()

    def _await_call(self) -> None:
        queue = self._completions.queue
        self._server.request_call(queue, queue, self._called)

    def _called(self, requested: Any) -> None:
        if not requested.success:  # the server has been shut down
            return
        if not self._is_stopping:
            self._await_call()
        self._count += 1
        self._is_idle.clear()
        call = CoreCall(self._loop, requested, self._ended, self._late_watch)
        handler = self._handlers.get(requested.call_details.method)
        if handler is None:
            call.refuse(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
        elif self._count > self._calls_max:
            call.refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!")
        else:
            call.serve(handler)

    def _ended(self) -> None:
        self._count -= 1
        if not self._count:
            self._is_idle.set()

    def _shut_down(self, _completion: Any) -> None:
        self._is_shut_down.set_result(None)

    async def _idle_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._is_idle.wait()
        except TimeoutError:
            return False
        return True
