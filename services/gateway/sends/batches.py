"""Batches of records on their way to the writer, by a call each; half messages of transactions are batches too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import grpc
from google.protobuf.message import Message

from penstock.framing import framed_batch
from penstock.v1 import transactions_pb2, writer_pb2
from services.gateway.messages.statuses import CallRefused, code_of, refusal_of
from services.upstream import CalledService
from storage.format.names import HALF_TOPIC
from storage.message import ProducerSequence

PRODUCE_BATCH: Final = "/penstock.v1.Writer/ProduceBatch"
PREPARE: Final = "/penstock.v1.Transactions/Prepare"
HALF_QUEUE: Final = (HALF_TOPIC, 0)
_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
SILENT_SECONDS: Final = 3.0  # without an answer, before another connection is tried
SLOW_BYTES_SECOND: Final = 4 << 20  # of the slowest writer that is not taken for silent


def _nothing() -> None:
    pass


class NotNow(Exception):
    """The writer has no room for the batch; it has stored nothing of it in this attempt."""


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


class _Calls:
    """Calls of the writer, over a connection of their own, which is renewed when one is not answered."""

    def __init__(self, writer: CalledService, renew: Callable[[], None] = _nothing) -> None:
        """Call ``renew`` where a call is not answered in time: the next one goes over another connection."""
        self._writer = writer
        self._renew = renew

    async def _call(self, path: str, request: Message | bytes, size: int) -> bytes:
        """Make a call with so many bytes of records. Raises Unanswered, grpc.aio.AioRpcError for a refusal."""
        seconds = SILENT_SECONDS + size / SLOW_BYTES_SECOND
        try:
            return await self._writer.call(path, request, timeout_s=seconds)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _UNANSWERED:
                raise
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                self._renew()
            raise Unanswered from error

    async def close(self) -> None:
        """End all calls."""
        await self._writer.close()


class BatchCalls(_Calls):
    """Stores batches."""

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, as Batches says."""
        frame = _frame(records, producer)
        try:
            answer = await self._call(PRODUCE_BATCH, frame, len(frame))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise NotNow from error
            raise CallRefused(code_of(error.code()), error.details() or "") from None
        return writer_pb2.ProduceBatchResponse.FromString(answer)


class HalfBatches(_Calls):
    """Stores batches of half messages, each a transaction of its own."""

    async def store(
        self, records: Sequence[bytes], _producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store messages, as Batches says; the writer knows those that it has by their keys."""
        joined = b"".join(records)
        request = transactions_pb2.PrepareRequest(records=joined)
        try:
            answer = await self._call(PREPARE, request, len(joined))
        except grpc.aio.AioRpcError as error:
            raise refusal_of(error) from None
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


def _frame(records: Sequence[bytes], producer: ProducerSequence) -> bytes:
    """Return a ProduceBatchRequest."""
    whose = writer_pb2.ProducerSequence(
        producer_id=producer.producer_id, sequence=producer.sequence, age_ms=producer.age_ms
    )
    field = writer_pb2.ProduceBatchRequest(producer=whose).SerializeToString()
    return framed_batch(records, sum(map(len, records)), field)
