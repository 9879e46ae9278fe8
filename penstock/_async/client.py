"""The client: messages in and out; topics, offsets and status are its connection's, by noun."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

from penstock._async.accounts import AsyncAccounts
from penstock._async.consumer import AsyncConsumer, AsyncKeyRecords
from penstock._async.dead_letters import AsyncDeadLetters
from penstock._async.pull_stream import AsyncPullStream
from penstock._async.staged_commit import AsyncStagedCommit
from penstock._async.status import AsyncStatus
from penstock._async.subscription import AsyncSubscription
from penstock._async.tables import AsyncTableCalls
from penstock._async.transactions import AsyncTransactionCalls
from penstock.batch import NO_PROPERTIES, Keys, RecordBatch
from penstock.calls import offsets, produce, records, staged_commits, timers
from penstock.calls.timers import Delay, DeliverAt
from penstock.consuming.damaged import OnDamaged
from penstock.consuming.key_query import KeyQuery, OnUncovered
from penstock.consuming.options import ConsumeOptions, SubscribeOptions
from penstock.producing.options import ProducerOptions
from penstock.producing.tasks import AsyncProducer
from penstock.record import Record
from penstock.requests import FRAME_OVERHEAD_MAX, key_tuple
from penstock.values import Message, PullResult, StagedApplication, Stored, StoredBatch, TimerCounts


class AsyncClient(
    AsyncTransactionCalls,
    AsyncDeadLetters,
    AsyncAccounts,
    AsyncStatus,
    AsyncTableCalls,
):
    """A connection to one store's writer, reader and indexer, for one event loop.

    It connects at the first call. ``timeout_s`` bounds each call with its retries; most calls take their own.
    With accounts on, ``access_key`` and ``secret_key`` (else the variables ``PENSTOCK_ACCESS_KEY`` and
    ``PENSTOCK_SECRET_KEY``) name the user. A request above ``request_bytes_max``, the writer's
    ``message_bytes_max``, is refused here. Close the client, or use it as an async context manager.
    """

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
        deliver_at: DeliverAt | None = None,
        delay: Delay | None = None,
        delay_level: int = 0,
        token: str = "",
        timeout_s: float | None = None,
    ) -> Stored:
        """Store one message; on return it is as durable as the writer's flush mode promises.

        The client sends it again while no answer comes, and the writer stores it once.

        ``deliver_at`` (a datetime, or Unix milliseconds), ``delay`` (a timedelta, or seconds) or
        ``delay_level`` (1 to 18) delivers it later; `recall` cancels it until then.

        Raises UnknownOutcome if no answer came in ``timeout_s``: the same call with its ``token`` finds out.
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
            delay_level=delay_level,
            deliver_at_ms=timers.deliver_at_ms(deliver_at),
            delay_ms=timers.delay_ms(delay),
        )
        stored = await self.produce_many([message], token=token, timeout_s=timeout_s)
        return stored[0]

    async def produce_many(
        self, messages: Sequence[Message], *, token: str = "", timeout_s: float | None = None
    ) -> list[Stored]:
        """Store messages in one call, all or none; results are in the order given.

        ``token`` is that of an UnknownOutcome of the same messages.
        """
        call = produce.messages(messages, bytes_max=self.request_bytes_max, token=token)
        return await self.run(call, timeout_s=timeout_s)

    async def recall(
        self, recall_handle: str, *, topic: str = "", timeout_s: float | None = None
    ) -> str:
        """Cancel a delayed message before it is delivered; return its unique key.

        On return the recall is as durable as the writer's flush mode promises. With ``topic`` a handle of
        another topic is refused. Raises InvalidArgument for a bad handle, and FailedPrecondition (reason
        TOO_LATE_TO_RECALL) if the time of the message has come.
        """
        return await self.run(timers.recall(recall_handle, topic), timeout_s=timeout_s)

    async def timers(
        self, *, within_s: Sequence[float] = (), timeout_s: float | None = None
    ) -> TimerCounts:
        """Count the delayed messages that wait, and those due within so many seconds."""
        return await self.run(timers.counts(within_s), timeout_s=timeout_s)

    async def produce_batch(
        self,
        batch: RecordBatch | bytes | bytearray | memoryview,
        *,
        token: str = "",
        timeout_s: float | None = None,
    ) -> StoredBatch:
        """Store encoded records in one call, all or none; ``token`` is as in `produce_many`."""
        records = batch.records() if isinstance(batch, RecordBatch) else batch
        call = produce.batch(records, bytes_max=self.request_bytes_max, token=token)
        return await self.run(call, timeout_s=timeout_s)

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

        The producer sends a batch when it has ``batch_bytes`` or is ``linger_ms`` old. `AsyncProducer.send`
        waits while ``max_in_flight`` batches have no answer, and sooner if the writer answers slowly.
        ``ordered`` keeps the order of ``send`` within each queue; without it more batches of one queue are in
        flight at once, in any order.
        """
        options = ProducerOptions(
            max_in_flight=max_in_flight,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            ordered=ordered,
            delivery_timeout_s=delivery_timeout_s,
            record_bytes_max=self.request_bytes_max - FRAME_OVERHEAD_MAX,
        )
        self.channels.allow(delivery_timeout_s)
        return AsyncProducer(self, options)

    # Staged commits

    def staged_commit(
        self, app_id: str, version: int, *, one_off: bool = False
    ) -> AsyncStagedCommit:
        """Return the staged commit of an application's version: stage records, then commit them once.

        ``one_off``: the application id is random and never used again.
        """
        return AsyncStagedCommit(self, app_id, version, one_off=one_off)

    async def staged_commits(self, *, timeout_s: float | None = None) -> list[StagedApplication]:
        """Return each application's commits, and its staged commits that are open."""
        return await self.run(staged_commits.list_all(), timeout_s=timeout_s)

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
        call = records.pull(
            topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag=tag,
            wait_ms=wait_ms,
        )
        return await self.run(call, timeout_s=timeout_s)

    def pull_stream(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_bytes: int = 0,
        tag: str = "",
        follow: bool = False,
    ) -> AsyncPullStream:
        """Read one queue to its end as a stream of pulls, each of up to ``max_bytes``.

        The reader sends ahead as far as flow control allows: this is the fastest way to catch up. With
        ``follow`` the stream goes on at the end. It is not retried: after an error start again at the last
        result's ``next_offset``. `close`, or leaving the ``async with`` block, ends it early.
        """
        call = records.pull_stream(
            topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_bytes=max_bytes,
            tag=tag,
            follow=follow,
        )
        return AsyncPullStream(self.channels, call)

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
        """Iterate over the records of a topic's queues: all of them, or those in ``queues``.

        Each queue starts at the group's committed offset, or, without one, at ``start``: the earliest or
        latest record, a queue offset, or a time. With ``follow`` the iterator waits for more at the end and
        outlasts a restart of the reader; without it the iteration ends. A damaged record raises DataLoss, and
        the next iteration goes on after it; ``on_damaged`` is called instead if it is given.

        Of a queue up to three answers of ``max_bytes`` are in memory; 0 is 4 MiB of up to four queues, of more
        16 MiB divided by their number, 1 MiB at least.
        """
        options = ConsumeOptions(
            topic=topic,
            group=group,
            queues=None if queues is None else tuple(queues),
            start=offsets.checked_start(start),
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

    def subscribe(
        self,
        topic: str,
        *,
        group: str,
        tag: str = "",
        sql: str = "",
        prefetch: int = 512,
        prefetch_bytes: int = 8 << 20,
        lease_ms: int = 30_000,
        wait_ms: int = 10_000,
        idle_s: float | None = None,
        on_damaged: OnDamaged | None = None,
    ) -> AsyncSubscription:
        """Join a group: iterate over leased messages of a topic, take `batches`, or `run` a handler.

        Messages are leased for ``lease_ms``; the subscription renews the leases while it is open. About
        ``prefetch`` messages, or ``prefetch_bytes``, wait in the client. A message that is given back, or
        whose member dies, is delivered again; after the group's last attempt it is a dead letter. ``tag``, an
        expression, or ``sql``, an SQL92 filter, chooses messages; the others are done for the group. With
        ``idle_s`` the subscription ends after so long without a message. A damaged record raises DataLoss,
        unless ``on_damaged`` is given.
        """
        options = SubscribeOptions(
            topic=topic,
            group=group,
            tag=tag,
            sql=sql,
            prefetch=prefetch,
            prefetch_bytes=prefetch_bytes,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            idle_s=idle_s,
            timeout_s=self.timeout_s,
            on_damaged=on_damaged,
        )
        return AsyncSubscription(self, options)

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
        on_uncovered: OnUncovered | None = None,
    ) -> AsyncKeyRecords:
        """Iterate over the records that carry a key, or with ``unique`` that unique id, newest first.

        ``begin`` and ``end`` bound the store time (Unix milliseconds or datetimes, both included). Pages are
        fetched as the iteration goes on.

        Where the index is damaged, the iterator raises IndexDamaged after the records that it found, and the
        next iteration goes on with older ones; ``on_uncovered`` gets the range instead if it is given.
        """
        return AsyncKeyRecords(
            self,
            KeyQuery(
                topic,
                key,
                unique=unique,
                begin_ms=0 if begin is None else offsets.timestamp_ms(begin, field="begin"),
                end_ms=None if end is None else offsets.timestamp_ms(end, field="end"),
                page_size=page_size,
                on_damaged=on_damaged,
                on_uncovered=on_uncovered,
            ),
        )

    async def message(self, message_id: str | int, *, timeout_s: float | None = None) -> Record:
        """Read one record by its offset message id, or by its commit offset as a number.

        Raises MessageNotFound, or DataLoss if it is damaged.
        """
        return await self.run(records.by_id(message_id), timeout_s=timeout_s)
