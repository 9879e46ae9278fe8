"""Requests to a service over one stream, answered in their order; a read waits before one is sent."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple

import grpc

_END_SECONDS: Final = 1.0


class _Asking(NamedTuple):
    request: bytes
    answered: asyncio.Future[bytes]


class AnswerStream:
    """Requests and their answers, in the same order."""

    def __init__(self, call: Any) -> None:
        self.has_ended = False
        self.answered_at = 0.0  # by the loop's clock
        self._call = call
        self._unsent: deque[_Asking] = deque()
        self._unanswered: deque[_Asking] = deque()
        self._loop = asyncio.get_running_loop()
        self._sending: asyncio.Task[None] | None = None
        self._reading = self._loop.create_task(self._read_on())

    async def connected(self) -> None:
        """Return once it has a connection. Raises grpc.aio.AioRpcError if it ends before."""
        await self._call.wait_for_connection()

    async def ask(self, request: bytes) -> bytes:
        """Return the answer to a request. Raises grpc.aio.AioRpcError if the stream ends before."""
        asked = _Asking(request, self._loop.create_future())
        self._unsent.append(asked)
        if self._sending is None:
            self._sending = self._loop.create_task(self._send())
        return await asked.answered

    async def _send(self) -> None:
        try:
            while self._unsent:
                asked = self._unsent.popleft()
                if not asked.answered.done():  # its caller waits still
                    self._unanswered.append(asked)
                    await self._call.write(asked.request)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            await asyncio.wait({self._reading}, timeout=_END_SECONDS)  # which learns how it ended
            self.end()
        finally:
            self._sending = None

    async def _read_on(self) -> None:
        try:
            while isinstance(data := await self._call.read(), bytes):
                self.answered_at = self._loop.time()
                asked = self._unanswered.popleft()
                if not asked.answered.done():
                    asked.answered.set_result(data)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            pass  # what waits is told below, whatever ended it
        finally:
            self.end()

    def end(self) -> None:
        """Have nothing asked any more; who waits is told that the stream has ended."""
        self.has_ended = True
        self._call.cancel()
        self._reading.cancel()
        for asked in (*self._unanswered, *self._unsent):
            if not asked.answered.done():
                problem = "the stream has ended"
                asked.answered.set_exception(call_error(grpc.StatusCode.UNAVAILABLE, problem))
        self._unanswered.clear()
        self._unsent.clear()


def call_error(code: grpc.StatusCode, message: str) -> grpc.aio.AioRpcError:
    """Return the error of a call that ended here."""
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=message, debug_error_string=message
    )
