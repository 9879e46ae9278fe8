"""Acknowledgements on their way to the reader: a stream that is opened again when it breaks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc
from google.protobuf.message import Message

from penstock.v1 import leases_pb2
from services.upstream import CALL_SECONDS, Upstream, request_bytes

ACKNOWLEDGE: Final = "/penstock.v1.Leases/Acknowledge"
ACKNOWLEDGE_STREAM: Final = "/penstock.v1.Leases/AcknowledgeStream"
_ALL_DONE: Final = leases_pb2.AcknowledgeStreamResponse(
    done=leases_pb2.AcknowledgeResponse()
).SerializeToString()
_END_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 1.0  # a caller who has less time says nothing of the connection


class _Asking(NamedTuple):
    request: bytes
    answered: asyncio.Future[bytes]


class StreamedAcknowledging:
    """A reader of which acknowledgements are asked over one stream; used on the event loop.

    ``streaming`` is another channel to it: a new connection for the stream ends no other call.
    """

    def __init__(self, reader: Upstream, streaming: Upstream) -> None:
        self._reader = reader
        self._streaming = streaming
        self._loop = asyncio.get_running_loop()
        self._stream: _AnswerStream | None = None

    async def call(
        self,
        path: str,
        request: Message | bytes,
        *,
        timeout_s: float = CALL_SECONDS,
        unwanted: Callable[[bytes], None] | None = None,
    ) -> bytes:
        """Make one call, as ``CalledService`` says."""
        if path == ACKNOWLEDGE:
            answer = await self._ask(request_bytes(request), timeout_s)
            if answer == _ALL_DONE:
                return b""  # an AcknowledgeResponse that refuses nothing
            outcome = leases_pb2.AcknowledgeStreamResponse.FromString(answer)
            if outcome.HasField("done"):
                return outcome.done.SerializeToString()
        # A refused one is asked again by itself: its status says more.
        return await self._reader.call(path, request, timeout_s=timeout_s, unwanted=unwanted)

    async def _ask(self, request: bytes, timeout_s: float) -> bytes:
        if self._stream is None or self._stream.has_ended:
            opened = self._streaming.stream(ACKNOWLEDGE_STREAM)
            self._stream = _AnswerStream(opened(wait_for_ready=True))
        stream = self._stream
        silent_since = self._loop.time()
        try:
            async with asyncio.timeout(timeout_s):
                return await stream.ask(request)
        except TimeoutError:
            silent_seconds = self._loop.time() - max(silent_since, stream.answered_at)
            if silent_seconds >= _SILENT_SECONDS and not stream.has_ended:
                stream.end()
                self._streaming.renew()
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, "not acknowledged in time") from None

    async def close(self) -> None:
        """End all calls."""
        if self._stream is not None:
            self._stream.end()
        await self._streaming.close()
        await self._reader.close()


class _AnswerStream:
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
                problem = "the stream of acknowledgements has ended"
                asked.answered.set_exception(_error(grpc.StatusCode.UNAVAILABLE, problem))
        self._unanswered.clear()
        self._unsent.clear()


def _error(code: grpc.StatusCode, message: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=message, debug_error_string=message
    )
