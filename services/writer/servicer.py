"""The writer's methods: request, one call of the engine, acknowledgement, answer.

Appends run on the event loop: they are a few microseconds of compiled code, and running them there
one after the other gives every stream its order without a lock. What may take longer goes to a
thread, requests of many messages among it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from penstock.v1 import common_pb2, writer_pb2
from services import wire
from services.rpc import status
from services.rpc.peers import host_of_peer
from services.rpc.servicer import EOF, Context, Draining, raw
from services.writer.acks import Acknowledging, Acks
from services.writer.eager import EagerCoroutine
from services.writer.plain_requests import PlainRequests
from services.writer.produce_kernels import BUFFER_SIZE
from services.writer.staged_commits import StagedCommitMethods, StagedCommits
from storage.errors import InvalidBatch, StoreClosed, StoreError, StoreFailed
from storage.log.message_slices import MessageSlices
from storage.message import BatchResult, Message, PutResult

MESSAGES_MAX: Final = 1 << 18  # of one request; the most that fit into one are millions
FEW_BYTES: Final = 16 << 10  # of a request that is judged, encoded and stored in a few milliseconds
_END: Final = object()


class Topic(Protocol):
    """What the contract tells of a topic."""

    @property
    def name(self) -> str: ...
    @property
    def read_queue_count(self) -> int: ...
    @property
    def write_queue_count(self) -> int: ...
    @property
    def perm(self) -> int: ...
    @property
    def attributes(self) -> Mapping[str, str]: ...


class WriterStore(Acknowledging, Protocol):
    """What the writer service needs of the engine; ``storage.writer.StoreWriter`` has it."""

    @property
    def appended_offset(self) -> int: ...
    @property
    def staged(self) -> StagedCommits: ...
    def put(self, messages: Sequence[Message], *, born_host: str) -> list[PutResult]: ...
    def message_slices(self, size_bytes: int) -> MessageSlices: ...
    def put_slices(self, message: MessageSlices, *, born_host: str) -> int | None: ...
    def append_batch(self, records: memoryview) -> BatchResult: ...
    def create_topic(
        self, name: str, queue_count: int, *, attributes: Mapping[str, str]
    ) -> Topic: ...
    def update_topic(
        self,
        name: str,
        *,
        queue_count: int | None,
        perm: int | None,
        attributes: Mapping[str, str],
    ) -> Topic: ...
    def delete_topic(self, name: str) -> None: ...
    def list_topics(self) -> Sequence[Topic]: ...
    def describe_topic(self, name: str) -> tuple[Topic, Sequence[tuple[int, int]]]: ...
    def status(self) -> Any: ...


class WriterServicer(StagedCommitMethods):
    """The methods of penstock.v1.Writer."""

    def __init__(
        self, store: WriterStore, acks: Acks, draining: asyncio.Event, *, stream_batches_max: int
    ) -> None:
        super().__init__(store.staged)
        self._store = store
        self._acks = acks
        self._draining = draining
        self._stream_batches_max = stream_batches_max
        self._plain = PlainRequests(store.message_slices(BUFFER_SIZE))

    @raw
    async def produce(self, request: bytes, context: Context) -> bytes:
        """Store messages; the answer follows once they are as safe as the flush mode says."""
        born_host = host_of_peer(context.peer())
        stored = self._put_plain(request, born_host)
        if stored is None:
            if len(request) <= FEW_BYTES:
                stored = self._put(request, born_host)
            else:
                stored = await asyncio.to_thread(self._put, request, born_host)
        answer, end = stored
        if not self._acks.has(end):
            await self._acks.wait(end)
        return answer

    @raw
    async def produce_batch(
        self, request: bytes, _context: Context
    ) -> writer_pb2.ProduceBatchResponse:
        """Store encoded records, all or none."""
        result = self._append(wire.batch_records(request))
        if not self._acks.has(result.end_commit_offset):
            await self._acks.wait(result.end_commit_offset)
        return wire.batch_response(result)

    @raw
    async def produce_stream(self, context: Context) -> None:
        """Store one batch a frame; answers follow in order, each when its batch is safe."""
        stream = _Stream(context, in_flight_max=self._stream_batches_max)
        answering = asyncio.ensure_future(self._answer(stream))
        receiving = asyncio.ensure_future(self._receive(stream))
        draining = asyncio.ensure_future(self._draining.wait())
        try:
            await asyncio.wait(
                {answering, receiving, draining}, return_when=asyncio.FIRST_COMPLETED
            )
            if answering.done():  # it ends by itself only if the stream broke
                await answering
            if not receiving.done():  # draining: no more frames, but answers to those stored
                if stream.is_reading:
                    receiving.cancel()
                await asyncio.wait({receiving})
            stream.outcomes.put_nowait(_END)
            await answering
            if receiving.cancelled():
                raise Draining
            receiving.result()
        finally:
            for task in (answering, receiving, draining):
                task.cancel()
            stream.cancel()

    async def create_topic(
        self, request: writer_pb2.CreateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Create a topic, durable on return."""
        topic = await asyncio.to_thread(
            self._store.create_topic,
            request.name,
            request.queue_count,
            attributes=dict(request.attributes),
        )
        return topic_message(topic)

    async def update_topic(
        self, request: writer_pb2.UpdateTopicRequest, _context: Context
    ) -> common_pb2.Topic:
        """Change what is given of a topic, durable on return."""
        topic = await asyncio.to_thread(
            self._store.update_topic,
            request.name,
            queue_count=request.queue_count if request.HasField("queue_count") else None,
            perm=request.perm if request.HasField("perm") else None,
            attributes=dict(request.attributes),
        )
        return topic_message(topic)

    async def delete_topic(
        self, request: writer_pb2.DeleteTopicRequest, _context: Context
    ) -> writer_pb2.DeleteTopicResponse:
        """Delete a topic; its records stay in the commit log."""
        await asyncio.to_thread(self._store.delete_topic, request.name)
        return writer_pb2.DeleteTopicResponse()

    async def describe_topic(
        self, request: writer_pb2.DescribeTopicRequest, _context: Context
    ) -> writer_pb2.DescribeTopicResponse:
        """Return a topic and the offsets of its queues."""
        topic, offsets = await asyncio.to_thread(self._store.describe_topic, request.name)
        return writer_pb2.DescribeTopicResponse(
            topic=topic_message(topic),
            queues=[
                writer_pb2.QueueState(queue_id=queue_id, min_offset=low, max_offset=high)
                for queue_id, (low, high) in enumerate(offsets)
            ],
        )

    async def list_topics(
        self, _request: writer_pb2.ListTopicsRequest, _context: Context
    ) -> writer_pb2.ListTopicsResponse:
        """Return all topics by name."""
        topics = sorted(self._store.list_topics(), key=lambda topic: topic.name)
        return writer_pb2.ListTopicsResponse(topics=map(topic_message, topics))

    async def get_writer_status(
        self, _request: writer_pb2.GetWriterStatusRequest, _context: Context
    ) -> writer_pb2.WriterStatus:
        """Return how far the writer is, and whether it can write."""
        now = self._store.status()
        return writer_pb2.WriterStatus(
            min_commit_offset=now.min_commit_offset,
            appended_offset=now.appended_offset,
            committed_offset=now.committed_offset,
            flushed_offset=now.flushed_offset,
            dispatched_offset=now.dispatched_offset,
            writable=now.writable,
            problem=now.problem,
            flush_mode=now.flush_mode,
            transient_pool=now.transient_pool,
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
        messages = writer_pb2.ProduceRequest.FromString(request).messages
        if not messages:
            raise status.InvalidArgument("messages", "is empty; send at least one message")
        results = self._store.put(list(map(wire.message_of, messages)), born_host=born_host)
        answer = writer_pb2.ProduceResponse(results=map(wire.put_result, results))
        return answer.SerializeToString(), self._store.appended_offset

    def _append(self, records: memoryview) -> BatchResult:
        if not records:
            raise InvalidBatch(0, "the batch is empty; send at least one record")
        return self._store.append_batch(records)

    async def _receive(self, stream: _Stream) -> None:
        """Append frames as they come; too many unanswered ones stop reading, and so the client.

        What is safe at once, with nothing before it unanswered, is answered here: no hand-over.
        """
        append, acks, draining = self._append, self._acks, self._draining
        reading = stream.begin_read()
        while not draining.is_set():
            stream.is_reading = True
            frame = await reading
            stream.is_reading = False
            if frame is EOF:
                return
            reading = stream.begin_read()
            try:
                result = append(wire.batch_records(frame))
            except StoreClosed:
                raise
            except StoreError as error:
                await stream.queue(error)
                continue
            if stream.unanswered == 0 and acks.has(result.end_commit_offset):
                await stream.write(wire.stream_stored(result))
            else:
                await stream.queue(result)
        raise Draining

    async def _answer(self, stream: _Stream) -> None:
        """Answer each frame when its batch is safe, or never will be."""
        while (outcome := await stream.outcomes.get()) is not _END:
            if not isinstance(outcome, StoreError):
                try:
                    if not self._acks.has(outcome.end_commit_offset):
                        await self._acks.wait(outcome.end_commit_offset)
                except StoreFailed as failed:
                    outcome = failed
            if isinstance(outcome, StoreError):
                answer = wire.stream_failure(wire.failure_of(outcome))
            else:
                answer = wire.stream_stored(outcome)
            await stream.write(answer)
            stream.answered()
        await stream.written()


class _Stream:
    """What receiving and answering share: outcomes in the order of their frames."""

    def __init__(self, context: Context, *, in_flight_max: int) -> None:
        self.context = context
        self.outcomes: asyncio.Queue[Any] = asyncio.Queue()
        self.unanswered = 0
        self.is_reading = False
        self._in_flight_max = in_flight_max
        self._room = asyncio.Event()
        self._reading: EagerCoroutine[Any] | None = None
        self._writing: EagerCoroutine[None] | None = None

    def begin_read(self) -> EagerCoroutine[Any]:
        """Ask for the next frame, so that it comes while the one before is stored."""
        self._reading = EagerCoroutine(self.context.read())
        return self._reading

    async def write(self, answer: bytes) -> None:
        """Begin to write; the end is waited for before the next one, so that a read can go beside."""
        if self._writing is not None:
            await self.written()
        self._writing = EagerCoroutine(self.context.write(answer))

    async def written(self) -> None:
        """Wait for the last write. Raises what it raised."""
        writing = self._writing
        if writing is None:
            return
        self._writing = None
        await writing

    async def queue(self, outcome: BatchResult | StoreError) -> None:
        """Leave an outcome to be answered; waits while as many are unanswered as may be."""
        self.unanswered += 1
        self.outcomes.put_nowait(outcome)
        while self.unanswered >= self._in_flight_max:
            self._room.clear()
            await self._room.wait()

    def answered(self) -> None:
        """Say that the oldest outcome was answered."""
        self.unanswered -= 1
        self._room.set()

    def cancel(self) -> None:
        """Let go of a read and a write that nobody waits for any more."""
        for operation in (self._reading, self._writing):
            if operation is not None:
                operation.cancel()


def topic_message(topic: Topic) -> common_pb2.Topic:
    """Return a topic as the contract has it."""
    return common_pb2.Topic(
        name=topic.name,
        read_queue_count=topic.read_queue_count,
        write_queue_count=topic.write_queue_count,
        perm=topic.perm,
        attributes=dict(topic.attributes),
    )
