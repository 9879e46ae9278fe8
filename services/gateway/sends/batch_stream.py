"""Batches of records on their way to the writer: a stream that is opened again when it breaks, or calls.

Half messages of transactions are batches too, by a call each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import grpc

from penstock.framing import framed_batch
from penstock.v1 import common_pb2, transactions_pb2, writer_pb2
from services.gateway.messages.statuses import CallRefused, code_of, refusal_of
from services.upstream import CalledService, ServiceAddress, Upstream, is_cancelled
from storage.format.names import HALF_TOPIC
from storage.message import ProducerSequence

PRODUCE_STREAM: Final = "/penstock.v1.Writer/ProduceStream"
PRODUCE_BATCH: Final = "/penstock.v1.Writer/ProduceBatch"
PREPARE: Final = "/penstock.v1.Transactions/Prepare"
HALF_QUEUE: Final = (HALF_TOPIC, 0)
_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
_ENDED: Final = (
    grpc.aio.AioRpcError,
    grpc.aio.UsageError,
    asyncio.InvalidStateError,
    asyncio.CancelledError,  # by the end of its channel, too
)
SILENT_SECONDS: Final = 3.0  # without an answer, before another connection is tried
SLOW_BYTES_SECOND: Final = 4 << 20  # of the slowest writer that is not taken for silent
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


def _nothing() -> None:
    pass


class NotNow(Exception):
    """The writer has no room for the batch, or is away; it has stored nothing of it in this attempt."""


class Unanswered(Exception):
    """The batch is stored or is not: its answer was lost."""


class Batches(Protocol):
    """Stores one batch at a time."""

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, all or none, and once; return where, once they are as durable as the writer
        promises.

        ``producer`` is the same in each attempt, but for its age. Raises NotNow, Unanswered, CallRefused if
        the writer does not take the records: with INTERNAL_SERVER_ERROR where they are not at fault, and may
        be stored.
        """
        ...

    async def close(self) -> None:
        """End all calls."""
        ...


class BatchCalls:
    """A call for each batch, to a writer in this process."""

    def __init__(self, writer: CalledService) -> None:
        self._writer = writer

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, as Batches says."""
        try:
            answer = await self._writer.call(PRODUCE_BATCH, _frame(records, producer))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise NotNow from error
            if error.code() in _UNANSWERED:
                raise Unanswered from error
            raise refusal_of(error) from None
        return writer_pb2.ProduceBatchResponse.FromString(answer)

    async def close(self) -> None:
        """Do nothing: the writer is closed by itself."""


class BatchStream:
    """One batch at a time, over another connection when there is no answer; used on the event loop.

    The connection is its own: a new one ends no other call.
    """

    def __init__(self, writer: ServiceAddress) -> None:
        self._writer = Upstream(writer)
        self._stream: Any = None  # that has had a connection

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, as Batches says."""
        frame = _frame(records, producer)
        if self._stream is None or self._stream.done():
            self._stream = await self._connected()
        try:
            async with asyncio.timeout(SILENT_SECONDS + len(frame) / SLOW_BYTES_SECOND):
                await self._stream.write(frame)
                answer = await self._stream.read()
        except BaseException as error:
            self._end()
            if not isinstance(error, (TimeoutError, *_ENDED)) or is_cancelled():
                raise
            if isinstance(error, TimeoutError):
                self._writer.renew()
            raise Unanswered from error
        if not isinstance(answer, bytes):
            raise Unanswered  # the stream has ended
        (outcome,) = writer_pb2.ProduceStreamResponse.FromString(answer).outcomes
        if outcome.HasField("stored"):
            return outcome.stored
        raise _refusal(outcome.failure)

    async def _connected(self) -> Any:
        """Return a stream that has a connection. Raises NotNow: nothing was written to one."""
        stream = self._writer.stream(PRODUCE_STREAM)(wait_for_ready=True)
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                await stream.wait_for_connection()
        except (TimeoutError, *_ENDED) as error:  # the channel goes on connecting
            stream.cancel()
            if is_cancelled():
                raise
            raise NotNow from error
        return stream

    async def close(self) -> None:
        """End all calls."""
        self._end()
        await self._writer.close()

    def _end(self) -> None:
        """End the stream; the next batch opens another one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()


class HalfBatches:
    """Stores batches of half messages, each a transaction of its own; ``Batches`` says how."""

    def __init__(self, writer: CalledService, renew: Callable[[], None] = _nothing) -> None:
        """Call ``renew`` where a call is not answered: the next one goes over another connection."""
        self._writer = writer
        self._renew = renew

    async def store(
        self, records: Sequence[bytes], _producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store messages, all or none; the writer knows those that it has by their keys. Raises Unanswered,
        CallRefused.
        """
        joined = b"".join(records)
        request = transactions_pb2.PrepareRequest(records=joined)
        seconds = SILENT_SECONDS + len(joined) / SLOW_BYTES_SECOND
        try:
            answer = await self._writer.call(PREPARE, request, timeout_s=seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _UNANSWERED:
                raise refusal_of(error) from None
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._renew()
            raise Unanswered from error
        topic, queue_id = HALF_QUEUE
        offsets = transactions_pb2.PrepareResponse.FromString(answer).half_offsets
        return writer_pb2.ProduceBatchResponse(
            ranges=[
                writer_pb2.QueueRange(
                    topic=topic, queue_id=queue_id, first_queue_offset=offset, count=1
                )
                for offset in offsets  # in no order: some were stored before
            ]
        )

    async def close(self) -> None:
        """End all calls."""
        await self._writer.close()


def _frame(records: Sequence[bytes], producer: ProducerSequence) -> bytes:
    """Return a ProduceBatchRequest."""
    whose = writer_pb2.ProducerSequence(
        producer_id=producer.producer_id, sequence=producer.sequence, age_ms=producer.age_ms
    )
    field = writer_pb2.ProduceBatchRequest(producer=whose).SerializeToString()
    return framed_batch(records, sum(map(len, records)), field)


def _refusal(failure: common_pb2.Failure) -> Exception:
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return NotNow(failure.message)
    return CallRefused(code_of(code), failure.message)
