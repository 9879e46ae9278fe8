"""Acknowledgements on their way to the reader: a stream that is opened again when it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import grpc
from google.protobuf.message import Message

from penstock.v1 import leases_pb2
from services.gateway.answer_stream import AnswerStream, call_error
from services.upstream import CALL_SECONDS, Upstream, request_bytes

ACKNOWLEDGE: Final = "/penstock.v1.Leases/Acknowledge"
ACKNOWLEDGE_STREAM: Final = "/penstock.v1.Leases/AcknowledgeStream"
_ALL_DONE: Final = leases_pb2.AcknowledgeStreamResponse(
    done=leases_pb2.AcknowledgeResponse()
).SerializeToString()
_SILENT_SECONDS: Final = 1.0  # a caller who has less time says nothing of the connection


class StreamedAcknowledging:
    """A reader of which acknowledgements are asked over one stream; used on the event loop.

    ``streaming`` is another channel to it: a new connection for the stream ends no other call.
    """

    def __init__(self, reader: Upstream, streaming: Upstream) -> None:
        self._reader = reader
        self._streaming = streaming
        self._loop = asyncio.get_running_loop()
        self._stream: AnswerStream | None = None

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
            self._stream = AnswerStream(opened(wait_for_ready=True))
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
            raise call_error(
                grpc.StatusCode.DEADLINE_EXCEEDED, "not acknowledged in time"
            ) from None

    async def close(self) -> None:
        """End all calls."""
        if self._stream is not None:
            self._stream.end()
        await self._streaming.close()
        await self._reader.close()
