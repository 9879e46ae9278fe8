"""The asyncio client: the surface of `Client`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import grpc

from penstock import calls
from penstock.addresses import (
    ALL_SERVICES,
    DEFAULT_INDEXER,
    DEFAULT_READER,
    DEFAULT_WRITER,
    Addresses,
    Service,
)
from penstock.aio_consumer import AsyncConsumer, AsyncKeyRecords
from penstock.aio_producer import AsyncProducer
from penstock.aio_transactions import AsyncTransaction
from penstock.batch import NO_PROPERTIES, Keys, RecordBatch
from penstock.calls import Attempts, Boundary, Call, Plan, Position
from penstock.channel import (
    CHANNEL_OPTIONS,
    HEALTH_PATH,
    NOT_CONNECTED,
    QUEUE_COUNT_KEPT_S,
    READY_POLL_S,
    health_request,
    is_serving,
)
from penstock.consuming import ConsumeOptions, KeyQuery, OnDamaged
from penstock.errors import ClientClosed, Unavailable
from penstock.producing import ProducerOptions
from penstock.record import Record
from penstock.requests import FRAME_OVERHEAD_MAX, REQUEST_BYTES_MAX, key_tuple
from penstock.retry import RetryPolicy
from penstock.transactions import list_transactions
from penstock.values import (
    GroupOffset,
    IndexerStatus,
    Message,
    OffsetRange,
    PullResult,
    ReaderStatus,
    Stored,
    StoredBatch,
    Topic,
    TopicDescription,
    TransactionApplication,
    WriterStatus,
)
from penstock.wire import Method
from storage.clock import Clock, SystemClock

T = TypeVar("T")


def _raw(message: bytes) -> bytes:
    return message


class AsyncClient:
    """A connection to one store's writer, reader and indexer; for one event loop.

    Nothing is connected before the first call. ``timeout_s`` bounds each call with its retries and
    can be given anew with most calls. ``request_bytes_max`` is the writer's ``message_bytes_max``: what
    is larger is refused here. Close it, or use it as an async context manager.
    """

    def __init__(
        self,
        *,
        writer: str = DEFAULT_WRITER,
        reader: str = DEFAULT_READER,
        indexer: str = DEFAULT_INDEXER,
        timeout_s: float = 10.0,
        retry: RetryPolicy | None = None,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        self.addresses = Addresses(writer, reader, indexer)
        self.timeout_s = timeout_s
        self.retry = retry or RetryPolicy()
        self.request_bytes_max = request_bytes_max
        self.clock = clock or SystemClock()
        self._channels: dict[Service, grpc.aio.Channel] = {}
        self._stage_channel: grpc.Channel | None = None
        self._stubs: dict[str, Any] = {}
        self._queue_counts: dict[str, tuple[int, float]] = {}
        self._closed = False

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; calls under way fail. Closing twice does nothing."""
        self._closed = True
        channels = list(self._channels.values())
        self._channels.clear()
        self._stubs.clear()
        if self._stage_channel is not None:
            self._stage_channel.close()
        for channel in channels:
            await channel.close(None)

    # Producing

    async def produce(
        self,
        topic: str,
        body: bytes,
        *,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        unique_key: str = "",
        flag: int = 0,
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; on return it is as durable as the writer's flush mode promises.

        Raises UnknownOutcome when it was sent and no answer came.
        """
        message = Message(
            topic=topic,
            body=body,
            keys=key_tuple(keys),
            tag=tag,
            properties=properties or NO_PROPERTIES,
            queue_id=queue_id,
            unique_key=unique_key,
            flag=flag,
        )
        stored = await self.produce_many([message], timeout_s=timeout_s)
        return stored[0]

    async def produce_many(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[Stored]:
        """Store messages in one call, all or none; results are in the order given."""
        return await self.run(
            calls.produce(messages, bytes_max=self.request_bytes_max), timeout_s=timeout_s
        )

    async def produce_batch(
        self, batch: RecordBatch | bytes | bytearray | memoryview, *, timeout_s: float | None = None
    ) -> StoredBatch:
        """Store encoded records in one call, all or none."""
        records = batch.records() if isinstance(batch, RecordBatch) else batch
        return await self.run(
            calls.produce_batch(records, bytes_max=self.request_bytes_max), timeout_s=timeout_s
        )

    def producer(
        self,
        *,
        max_in_flight: int = 64,
        linger_ms: float = 5,
        batch_bytes: int = 64 << 10,
        ordered: bool = True,
        delivery_timeout_s: float = 30.0,
    ) -> AsyncProducer:
        """Return a streaming producer; use it as an async context manager.

        A batch is sent when it has ``batch_bytes`` or is ``linger_ms`` old; at most
        ``max_in_flight`` batches are sent and not answered, then `AsyncProducer.send` waits.
        ``ordered`` keeps the order of ``send`` within each queue even when batches are refused and
        sent again; without it more batches of one queue are in flight at once.
        """
        options = ProducerOptions(
            max_in_flight=max_in_flight,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            ordered=ordered,
            delivery_timeout_s=delivery_timeout_s,
            record_bytes_max=self.request_bytes_max - FRAME_OVERHEAD_MAX,
        )
        return AsyncProducer(self, options)

    # Transactions

    def transaction(self, app_id: str, version: int, *, one_off: bool = False) -> AsyncTransaction:
        """Return the transaction of an application's version: stage records, then commit them once.

        ``one_off`` says that the application id is random and never used again.
        """
        return AsyncTransaction(self, app_id, version, one_off=one_off)

    async def transactions(self, *, timeout_s: float | None = None) -> list[TransactionApplication]:
        """Return what each application has committed, and what is staged or being committed."""
        return await self.run(list_transactions(), timeout_s=timeout_s)

    # Consuming

    async def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 0,
        tag: str = "",
        wait_ms: int = 0,
        timeout_s: float | None = None,
    ) -> PullResult:
        """Read records of one queue from an offset on, waiting up to ``wait_ms`` for the first one.

        ``tag`` is an expression: "" or "*" for all, else tags joined by ``||``. Damaged records do
        not raise: they are in the result's ``damaged``.
        """
        call = calls.pull(
            topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag=tag,
            wait_ms=wait_ms,
        )
        return await self.run(call, timeout_s=timeout_s)

    async def pull_stream(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_bytes: int = 0,
        tag: str = "",
        follow: bool = False,
    ) -> AsyncIterator[PullResult]:
        """Read one queue to its end as a stream of pulls, each of up to ``max_bytes``.

        The reader sends ahead as far as flow control lets it, which is the fastest way to catch up.
        With ``follow`` the stream goes on at the end. Nothing is retried: after an error start
        anew at the last result's ``next_offset``.
        """
        call = calls.pull_stream(
            topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_bytes=max_bytes,
            tag=tag,
            follow=follow,
        )
        stream = self._channel(call.method.service).unary_stream(
            call.method.path, call.method.serialize, call.method.deserialize
        )(call.request)
        try:
            async for response in stream:
                yield call.interpret(response)
        except grpc.aio.AioRpcError as error:
            raise call.error_of(error) from error
        finally:
            stream.cancel()

    def consume(
        self,
        topic: str,
        *,
        group: str = "",
        queues: Iterable[int] | None = None,
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        tag: str = "",
        follow: bool = True,
        auto_commit: bool = True,
        commit_interval_ms: int = 1_000,
        max_bytes: int = 0,
        wait_ms: int = 10_000,
        on_damaged: OnDamaged | None = None,
    ) -> AsyncConsumer:
        """Iterate over the records of a topic's queues, all of them unless ``queues`` names some.

        Each queue starts at the group's committed offset, or where there is none at ``start``: the
        earliest or latest record, a queue offset, or a time. With ``follow`` the iterator waits for
        more at the end and outlasts a restart of the reader; without it the iteration ends.
        A damaged record raises DataLoss (iterating on goes behind it) unless ``on_damaged`` is
        given, which is then called instead.
        """
        options = ConsumeOptions(
            topic=topic,
            group=group,
            queues=None if queues is None else tuple(queues),
            start=start,
            tag=tag,
            follow=follow,
            auto_commit=auto_commit,
            commit_interval_ms=commit_interval_ms,
            max_bytes=max_bytes,
            wait_ms=wait_ms,
            timeout_s=self.timeout_s,
            on_damaged=on_damaged,
        )
        return AsyncConsumer(self, options)

    def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: int | datetime | None = None,
        end: int | datetime | None = None,
        unique: bool = False,
        page_size: int = 64,
        on_damaged: OnDamaged | None = None,
    ) -> AsyncKeyRecords:
        """Iterate over the records that carry a key, or with ``unique`` that unique id, newest first.

        ``begin`` and ``end`` bound the store time (Unix milliseconds or datetimes, both included).
        Pages are fetched as the iteration goes on.
        """
        return AsyncKeyRecords(
            self,
            KeyQuery(
                topic,
                key,
                unique=unique,
                begin_ms=0 if begin is None else calls.timestamp_ms(begin),
                end_ms=None if end is None else calls.timestamp_ms(end),
                page_size=page_size,
                on_damaged=on_damaged,
            ),
        )

    async def message(self, message_id: str | int, *, timeout_s: float | None = None) -> Record:
        """Read one record by its offset message id, or by its commit offset if a number is given.

        Raises MessageNotFound, or DataLoss if it is damaged.
        """
        return await self.run(calls.message(message_id), timeout_s=timeout_s)

    # Offsets and groups

    async def offset(
        self,
        topic: str,
        queue_id: int,
        position: Position = "latest",
        *,
        boundary: Boundary = "lower",
        timeout_s: float | None = None,
    ) -> OffsetRange:
        """Return the earliest or latest offset of a queue, or the one at a time.

        A time (Unix milliseconds or datetime) gives the first record stored at or after it, with
        ``boundary="upper"`` the last one stored at or before it.
        """
        call = calls.offset(topic, queue_id=queue_id, position=position, boundary=boundary)
        return await self.run(call, timeout_s=timeout_s)

    async def commit_offset(
        self,
        group: str,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Record that a group consumed a queue up to, not including, ``offset``."""
        call = calls.commit_offset(group, topic, queue_id=queue_id, queue_offset=offset)
        await self.run(call, timeout_s=timeout_s)

    async def offsets(
        self, group: str, topic: str = "", *, timeout_s: float | None = None
    ) -> list[GroupOffset]:
        """Return how far a group came, in one topic or in all of its topics."""
        return await self.run(calls.offsets(group, topic), timeout_s=timeout_s)

    async def groups(self, *, timeout_s: float | None = None) -> list[str]:
        """Return the names of all consumer groups."""
        return await self.run(calls.groups(), timeout_s=timeout_s)

    # Topics

    async def create_topic(
        self,
        name: str,
        *,
        queues: int = 8,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """Create a topic; raises TopicExists if there is one of that name."""
        call = calls.create_topic(name, queue_count=queues, attributes=attributes or {})
        return await self.run(call, timeout_s=timeout_s)

    async def topics(self, *, timeout_s: float | None = None) -> list[Topic]:
        """Return all topics by name."""
        return await self.run(calls.topics(), timeout_s=timeout_s)

    async def describe_topic(
        self, name: str, *, timeout_s: float | None = None
    ) -> TopicDescription:
        """Return a topic and the offsets of its queues."""
        return await self.run(calls.describe_topic(name), timeout_s=timeout_s)

    async def update_topic(
        self,
        name: str,
        *,
        queues: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Topic:
        """Change what is given of a topic and return it."""
        call = calls.update_topic(name, queue_count=queues, perm=perm, attributes=attributes or {})
        topic = await self.run(call, timeout_s=timeout_s)
        self._queue_counts.pop(name, None)
        return topic

    async def delete_topic(self, name: str, *, timeout_s: float | None = None) -> None:
        """Delete a topic; its records stay in the commit log until that is cut."""
        await self.run(calls.delete_topic(name), timeout_s=timeout_s)
        self._queue_counts.pop(name, None)

    # The services themselves

    async def wait_ready(
        self, timeout_s: float = 30.0, *, services: Iterable[Service] = ALL_SERVICES
    ) -> None:
        """Wait until the services' own health checks say SERVING; Unavailable after the timeout."""
        deadline = self.clock.monotonic() + timeout_s
        for service in services:
            check = self._channel(service).unary_unary(HEALTH_PATH, _raw, _raw)
            problem = "never answered"
            while True:
                left = deadline - self.clock.monotonic()
                try:
                    request = health_request(service)
                    if is_serving(await check(request, timeout=max(0.01, min(left, 1)))):
                        break
                    problem = "answers, but is not serving"
                except grpc.aio.AioRpcError as error:
                    problem = error.details() or str(error.code())
                if left <= 0:
                    address = self.addresses.of(service)
                    raise Unavailable(f"the {service} at {address} is not ready: {problem}")
                await self._pause(READY_POLL_S)

    async def writer_status(self, *, timeout_s: float | None = None) -> WriterStatus:
        """Return the writer's positions and whether it takes writes."""
        return await self.run(calls.writer_status(), timeout_s=timeout_s)

    async def reader_status(self, *, timeout_s: float | None = None) -> ReaderStatus:
        """Return what the reader sees."""
        return await self.run(calls.reader_status(), timeout_s=timeout_s)

    async def indexer_status(self, *, timeout_s: float | None = None) -> IndexerStatus:
        """Return how far the index is."""
        return await self.run(calls.indexer_status(), timeout_s=timeout_s)

    async def wait_indexed(
        self, commit_offset: int, *, timeout_s: float | None = None
    ) -> IndexerStatus:
        """Wait until every record before a commit offset can be found by key."""
        return await self.run(calls.wait_indexed(commit_offset), timeout_s=timeout_s)

    # The shell

    async def run(self, call: Call[T], *, timeout_s: float | None = None) -> T:
        """Send a call, again where that is safe, and return what its answer means."""
        attempts = Attempts(
            call,
            self.retry,
            timeout_s=self.timeout_s if timeout_s is None else timeout_s,
            clock=self.clock,
        )
        stub = self.stub(call.method)
        while True:
            try:
                response = await stub(call.request, timeout=attempts.remaining_s())
            except grpc.aio.AioRpcError as error:
                await self._pause(attempts.after(error))
            else:
                return call.interpret(response)

    async def run_plan(self, plan: Plan[T], *, timeout_s: float | None = None) -> T:
        """Run a plan's calls one after the other and return its value."""
        result: Any = None
        while True:
            try:
                call = plan.send(result)
            except StopIteration as stop:
                value: T = stop.value
                return value
            result = await self.run(call, timeout_s=timeout_s)

    async def queue_count(self, topic: str) -> int:
        """Return how many queues of a topic take writes; asked for now and then."""
        now = self.clock.monotonic()
        count, known_until = self._queue_counts.get(topic, (0, now))
        if known_until <= now:
            described = await self.describe_topic(topic)
            count = described.topic.write_queue_count
            self._queue_counts[topic] = (count, now + QUEUE_COUNT_KEPT_S)
        return count

    def stub(self, method: Method) -> Any:
        """Return grpc's callable for a unary method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            channel = self._channel(method.service)
            stub = channel.unary_unary(
                method.path,
                request_serializer=method.serialize,
                response_deserializer=method.deserialize,
            )
            self._stubs[method.path] = stub
        return stub

    def request_stream(self, method: Method) -> Any:
        """Return grpc's callable, of its synchronous kind, for a stream of requests and one answer.

        That of grpc.aio says "Internal error" in place of a refusal that comes between requests.
        """
        if self._closed:
            raise ClientClosed("the client is closed")
        if self._stage_channel is None:
            self._stage_channel = grpc.insecure_channel(
                self.addresses.of(method.service), options=list(CHANNEL_OPTIONS)
            )
        return self._stage_channel.stream_unary(
            method.path,
            request_serializer=method.serialize,
            response_deserializer=method.deserialize,
        )

    def stream(self, method: Method) -> Any:
        """Return grpc's callable for a method with streams both ways."""
        return self._channel(method.service).stream_stream(
            method.path,
            request_serializer=method.serialize,
            response_deserializer=method.deserialize,
        )

    async def wait_connected(self, service: Service, timeout_s: float) -> bool:
        """Wait for a connection; False if there is none in time. Any answer proves one."""
        check = self._channel(service).unary_unary(HEALTH_PATH, _raw, _raw)
        try:
            await check(health_request(service), timeout=timeout_s, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            return error.code() not in NOT_CONNECTED
        return True

    def _channel(self, service: Service) -> grpc.aio.Channel:
        if self._closed:
            raise ClientClosed("the client is closed")
        channel = self._channels.get(service)
        if channel is None:
            channel = grpc.aio.insecure_channel(
                self.addresses.of(service), options=list(CHANNEL_OPTIONS)
            )
            self._channels[service] = channel
        return channel

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if self._closed:
            raise ClientClosed("the client was closed")
