"""Batches of records on their way to the writer: a stream that is opened again when it breaks, or calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

import grpc

from penstock.v1 import common_pb2, writer_pb2
from services.rocketmq.statuses import CallRefused, code_of
from services.upstream import CalledService, Upstream
from services.wire import varint
from storage.message import ProducerSequence

PRODUCE_STREAM: Final = "/penstock.v1.Writer/ProduceStream"
PRODUCE_BATCH: Final = "/penstock.v1.Writer/ProduceBatch"
_RECORDS_TAG: Final = bytes([(writer_pb2.ProduceBatchRequest.RECORDS_FIELD_NUMBER << 3) | 2])
_PRODUCER_TAG: Final = bytes([(writer_pb2.ProduceBatchRequest.PRODUCER_FIELD_NUMBER << 3) | 2])
_UNANSWERED: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
)
SILENT_SECONDS: Final = 3.0  # without an answer, before another connection is tried
SLOW_BYTES_SECOND: Final = 4 << 20  # of the slowest writer that is not taken for silent
_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}


class NotNow(Exception):
    """The writer has no room for the batch, and has stored nothing of it in this attempt."""


class Unanswered(Exception):
    """The batch is stored or is not: its answer was lost."""


class Batches(Protocol):
    """Stores one batch at a time."""

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, all or none, and once; return where, once they are as durable as the writer promises.

        ``producer`` is the same in each attempt, but for its age. Raises NotNow, Unanswered, CallRefused if the writer
        does not take the records: with INTERNAL_SERVER_ERROR where they are not at fault, and may be stored.
        """
        ...

    def close(self) -> None:
        """Give up what is under way."""
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
            raise CallRefused(code_of(error.code()), error.details() or "") from None
        return writer_pb2.ProduceBatchResponse.FromString(answer)

    def close(self) -> None:
        """Do nothing: the writer ends what it began."""


class BatchStream:
    """One batch at a time, over another connection when there is no answer; used on the event loop."""

    def __init__(self, writer: Upstream) -> None:
        self._writer = writer
        self._call: Any = None

    async def store(
        self, records: Sequence[bytes], producer: ProducerSequence
    ) -> writer_pb2.ProduceBatchResponse:
        """Store records, as Batches says."""
        frame = _frame(records, producer)
        try:
            async with asyncio.timeout(SILENT_SECONDS + len(frame) / SLOW_BYTES_SECOND):
                if self._call is None:
                    self._call = self._writer.stream(PRODUCE_STREAM)(wait_for_ready=True)
                await self._call.write(frame)
                answer = await self._call.read()
        except TimeoutError as error:
            self.close()
            self._writer.renew()
            raise Unanswered from error
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as error:
            self.close()
            raise Unanswered from error
        if not isinstance(answer, bytes):  # the end of the stream
            self.close()
            raise Unanswered
        response = writer_pb2.ProduceStreamResponse.FromString(answer)
        if response.HasField("stored"):
            return response.stored
        raise _refusal(response.failure)

    def close(self) -> None:
        """End the stream; the next batch opens another one."""
        call, self._call = self._call, None
        if call is not None:
            with suppress(grpc.aio.UsageError):
                call.cancel()


def _frame(records: Sequence[bytes], producer: ProducerSequence) -> bytes:
    """Return a ProduceBatchRequest."""
    whose = writer_pb2.ProducerSequence(
        producer_id=producer.producer_id, sequence=producer.sequence, age_ms=producer.age_ms
    ).SerializeToString()
    size = sum(map(len, records))
    return b"".join(
        (_PRODUCER_TAG, varint(len(whose)), whose, _RECORDS_TAG, varint(size), *records)
    )


def _refusal(failure: common_pb2.Failure) -> Exception:
    code = _CODES.get(failure.code, grpc.StatusCode.UNKNOWN)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return NotNow(failure.message)
    return CallRefused(code_of(code), failure.message)
