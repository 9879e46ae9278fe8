"""The writer's methods: request, one call of the engine, acknowledgement, answer.

Appends run on the event loop: they are a few microseconds of compiled code, and running them there
one after the other gives every stream its order without a lock. What may take longer goes to a
thread, requests of many messages among it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.v1 import writer_pb2
from services import wire
from services.rpc import status
from services.rpc.peers import host_of_peer
from services.rpc.servicer import Context, brief, raw
from services.writer import batch_frames
from services.writer.acks import Acks
from services.writer.large_calls import run_large
from services.writer.plain_requests import BUFFER_SIZE, PlainRequests
from services.writer.produce_stream import ProduceStream
from services.writer.staged_commits import StagedCommitMethods
from services.writer.topics import TopicMethods
from storage.errors import InvalidBatch
from storage.message import BatchResult, ProducerSequence
from storage.writer import StoreWriter

MESSAGES_MAX: Final = 1 << 18  # of one request; the most that fit into one are millions
FEW_BYTES: Final = 16 << 10  # of a request that is judged, encoded and stored in a few milliseconds

BATCH_BYTES_MAX: Final = 2 << 20  # of a batch that is checked and stored on the event loop
QUEUES_MAX: Final = 256  # of such a batch: each may be looked for on disk


class WriterServicer(StagedCommitMethods, TopicMethods):
    """The methods of penstock.v1.Writer."""

    def __init__(
        self, store: StoreWriter, acks: Acks, draining: asyncio.Event, *, stream_batches_max: int,
        refused: Callable[[Exception], None] = lambda _: None,
    ) -> None:  # fmt: skip
        """``refused`` is called with why a frame of a stream was."""
        StagedCommitMethods.__init__(self, store.staged)
        TopicMethods.__init__(self, store)
        self._store = store
        self._acks = acks
        self._draining = draining
        self._stream_batches_max = stream_batches_max
        self._refused = refused
        self._plain = PlainRequests(store.message_slices(BUFFER_SIZE))

    @brief
    @raw
    async def produce(self, request: bytes, context: Context) -> bytes:
        """Store messages; the answer follows once they are as durable as the flush mode says."""
        born_host = host_of_peer(context.peer())
        stored = self._put_plain(request, born_host)
        if stored is None and len(request) <= FEW_BYTES:
            stored = self._put_few(request, born_host)
        if stored is None:
            stored = await run_large(self._put, request, born_host)
        answer, end = stored
        if not self._acks.has(end):
            await self._acks.wait(end)
        return answer

    @brief
    @raw
    async def produce_batch(self, request: bytes, _context: Context) -> bytes:
        """Store encoded records, all or none."""
        records, producer = batch_frames.batch_request(request)
        result = self._append_few(records, producer)
        if result is not None:
            if not self._acks.has(result.end_commit_offset):
                await self._acks.wait(result.end_commit_offset)
            return batch_frames.batch_response(result)
        result = await run_large(self._append, records, producer)
        await self._acks.wait(result.end_commit_offset)
        return await run_large(batch_frames.batch_response, result)

    @raw
    async def produce_stream(self, context: Context) -> None:
        """Store one batch a frame; answers follow in order, each when its batch is safe."""
        stream = ProduceStream(
            context,
            self._append_together,
            self._append_few,
            self._append,
            self._acks,
            self._draining,
            in_flight_max=self._stream_batches_max,
            refused=self._refused,
        )
        await stream.serve()

    async def get_writer_status(
        self, _request: writer_pb2.GetWriterStatusRequest, _context: Context
    ) -> writer_pb2.WriterStatus:
        """Return how far the writer is, and whether it can write."""
        now = self._store.status()
        return wire.message_from(
            writer_pb2.WriterStatus,
            now,
            scrub_position=now.scrub.position,
            scrub_end=now.scrub.end,
            scrub_completed_ms=now.scrub.completed_ms,
            scrub_finding_count=now.scrub.finding_count,
            scrub_repaired_count=now.scrub.repaired_count,
            scrub_last_finding=now.scrub.last_finding,
            pending_timer_count=now.timers.pending_count,
            next_timer_due_ms=now.timers.next_due_ms or 0,
            timers_late_ms=now.timers.late_ms,
            pending_half_count=now.halves.pending_count,
            oldest_half_ms=now.halves.oldest_ms,
            stored_record_count=self._store.counts.appended_count(),
        )

    def _put_plain(self, request: bytes, born_host: str) -> tuple[bytes, int] | None:
        """Store the message of a plain request; return the answer and the record's end, None if it is not."""
        plain = self._plain
        if not plain.read(request):
            return None
        end = self._store.put_slices(plain.message, born_host=born_host)
        return None if end is None else (plain.answer(), end)

    def _put(self, request: bytes, born_host: str) -> tuple[bytes, int]:
        if wire.count_fields(request, MESSAGES_MAX + 1) > MESSAGES_MAX:
            raise status.InvalidArgument(
                "messages", f"are too many; send at most {MESSAGES_MAX} in one request"
            )
        return self._put_parsed(writer_pb2.ProduceRequest.FromString(request), born_host)

    def _put_few(self, request: bytes, born_host: str) -> tuple[bytes, int] | None:
        """Store a small request, unless it came before: what is stored of that may have to be read from the disk."""
        parsed = writer_pb2.ProduceRequest.FromString(request)
        producer = wire.producer_of(parsed)
        if producer is not None and not self._store.is_new(producer):
            return None
        return self._put_parsed(parsed, born_host)

    def _put_parsed(self, parsed: writer_pb2.ProduceRequest, born_host: str) -> tuple[bytes, int]:
        messages = parsed.messages
        if not messages:
            raise status.InvalidArgument("messages", "is empty; send at least one message")
        results = self._store.put(
            list(map(wire.message_of, messages)),
            born_host=born_host,
            producer=wire.producer_of(parsed),
        )
        answer = writer_pb2.ProduceResponse(
            results=map(wire.put_result, results), repeated=results[0].repeated
        )
        return answer.SerializeToString(), self._store.appended_offset

    def _append(self, records: memoryview, producer: ProducerSequence | None) -> BatchResult:
        return self._store.append_batch(records, producer=producer)

    def _append_together(self, batches: Sequence[memoryview]) -> list[BatchResult] | None:
        return self._store.append_together(batches, queues_max=QUEUES_MAX)

    def _append_few(
        self, records: memoryview, producer: ProducerSequence | None
    ) -> BatchResult | None:
        """Append a batch, or return None where that may take long."""
        if not records:
            raise InvalidBatch(0, "the batch is empty; send at least one record")
        if len(records) > BATCH_BYTES_MAX:
            return None
        return self._store.append_batch_of_few(records, queues_max=QUEUES_MAX, producer=producer)
