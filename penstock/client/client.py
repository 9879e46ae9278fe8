"""The client: what is sent and read as a stream; calls one by one are in `penstock.calls`, by noun."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

from penstock.calls import offsets, records
from penstock.calls.accounts import AccountOperations
from penstock.calls.dead_letters import DeadLetterOperations
from penstock.calls.groups import GroupOperations
from penstock.calls.leases import LeaseOperations
from penstock.calls.offsets import OffsetOperations
from penstock.calls.produce import ProduceOperations
from penstock.calls.records import RecordOperations
from penstock.calls.staged_commits import StagedCommitOperations
from penstock.calls.status import StatusOperations
from penstock.calls.timers import TimerOperations
from penstock.calls.topics import TopicOperations
from penstock.calls.transactions import TransactionCheck, TransactionOperations
from penstock.client.connection import AsyncConnection, Connection
from penstock.client.consumer import AsyncConsumer, Consumer
from penstock.client.key_records import AsyncKeyRecords, KeyRecords
from penstock.client.pull_stream import AsyncPullStream, PullStream
from penstock.client.staged_commit import AsyncStagedCommit, StagedCommit
from penstock.client.subscription import AsyncSubscription, Subscription
from penstock.client.tables import TableCalls
from penstock.client.transactions import (
    AsyncTransaction,
    AsyncTransactionChecker,
    Transaction,
    TransactionChecker,
)
from penstock.consuming.damaged import OnDamaged, OnUncovered
from penstock.consuming.options import ConsumeOptions, SubscribeOptions
from penstock.forms import makes
from penstock.producing.options import ProducerOptions
from penstock.producing.producer import AsyncProducer, Producer
from penstock.requests import FRAME_OVERHEAD_MAX


class ClientCore(
    ProduceOperations,
    RecordOperations,
    TopicOperations,
    OffsetOperations,
    GroupOperations,
    LeaseOperations,
    DeadLetterOperations,
    TransactionOperations,
    TimerOperations,
    StagedCommitOperations,
    StatusOperations,
    AccountOperations,
    TableCalls,
):
    """The calls of a client, in both forms."""

    @makes(Producer, AsyncProducer)
    def producer(
        self,
        *,
        max_in_flight: int = 64,
        linger_ms: float = 5,
        batch_bytes: int = 64 << 10,
        ordered: bool = True,
        delivery_timeout_s: float = 30.0,
    ) -> tuple[Any, ...]:
        """Return a streaming producer; use it as a context manager.

        The producer sends a batch when it has ``batch_bytes`` or is ``linger_ms`` old. `Producer.send`
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
        return (options,)

    @makes(StagedCommit, AsyncStagedCommit)
    def staged_commit(self, app_id: str, version: int, *, one_off: bool = False) -> tuple[Any, ...]:
        """Return the staged commit of an application's version: stage records, then commit them once.

        ``one_off``: the application id is random and never used again.
        """
        return app_id, version, one_off

    @makes(Transaction, AsyncTransaction)
    def transaction(
        self, topic: str, *, transaction_id: str = "", immunity_s: int = 0
    ) -> tuple[Any, ...]:
        """Return a transaction: ``with client.transaction("orders") as t: t.send(b"...")``.

        ``transaction_id`` is what a checker gets, such as the number of an order and of the attempt; without
        it the id is random. An id is for one run: it is refused while messages of another run are pending,
        and after its end. Nobody is asked about the transaction for ``immunity_s``, or, with 0, for as long
        as the writer is set to.
        """
        return topic, transaction_id or secrets.token_hex(16).upper(), immunity_s

    @makes(TransactionChecker, AsyncTransactionChecker)
    def transaction_checker(
        self, topics: Sequence[str], checker: Callable[[TransactionCheck], Any]
    ) -> tuple[Any, ...]:
        """Answer questions about transactions of topics that their producers left open.

        ``checker`` returns True to commit, False to roll back, None if that is not known yet: it is asked
        again later. Use the result as a context manager.
        """
        return topics, checker

    @makes(PullStream, AsyncPullStream)
    def pull_stream(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_bytes: int = 0,
        tag: str = "",
        follow: bool = False,
    ) -> tuple[Any, ...]:
        """Read one queue to its end as a stream of pulls, each of up to ``max_bytes``.

        The reader sends ahead as far as flow control allows: this is the fastest way to catch up. With
        ``follow`` the stream goes on at the end. It is not retried: after an error start again at the last
        result's ``next_offset``. `close`, or leaving its block, ends it early.
        """
        call = records.pull_stream(
            topic,
            queue_id,
            offset,
            max_bytes=max_bytes,
            tag=tag,
            follow=follow,
        )
        return (call,)

    @makes(Consumer, AsyncConsumer)
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
    ) -> tuple[Any, ...]:
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
        return (options,)

    @makes(Subscription, AsyncSubscription)
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
    ) -> tuple[Any, ...]:
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
        return (options,)

    @makes(KeyRecords, AsyncKeyRecords)
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
    ) -> tuple[Any, ...]:
        """Iterate over the records that carry a key, or with ``unique`` that unique id, newest first.

        ``begin`` and ``end`` bound the store time (Unix milliseconds or datetimes, both included). Pages are
        fetched as the iteration goes on.

        Where the index is damaged, the iterator raises IndexDamaged after the records that it found, and the
        next iteration goes on with older ones; ``on_uncovered`` gets the range instead if it is given.
        """
        page = partial(
            records.by_key,
            topic,
            key,
            unique=unique,
            begin_ms=0 if begin is None else offsets.timestamp_ms(begin, field="begin"),
            end_ms=None if end is None else offsets.timestamp_ms(end, field="end"),
            page_size=page_size,
        )
        return page, topic, key, unique, on_damaged, on_uncovered


class Client(ClientCore, Connection):
    """A connection to one store's writer, reader and indexer, safe to share between threads.

    It connects at the first call. ``timeout_s`` bounds each call with its retries; most calls take their own.
    With accounts on, ``access_key`` and ``secret_key`` (else the variables ``PENSTOCK_ACCESS_KEY`` and
    ``PENSTOCK_SECRET_KEY``) name the user. A request above ``request_bytes_max``, the writer's
    ``message_bytes_max``, is refused here. Close the client, or use it as a context manager.
    """


class AsyncClient(ClientCore, AsyncConnection):
    """As `Client`, for one event loop: its calls are awaited, and its blocks are ``async with``."""
