"""Records by columns: Arrow batches in the place of records, and tables that are sent."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from penstock.calls import offsets, produce, records, topics
from penstock.calls.call import Call
from penstock.client.connection import ConnectionCore
from penstock.client.consumer import ConsumerCore
from penstock.client.pull_stream import PullStreamCore
from penstock.client.subscription import SubscriptionCore
from penstock.consuming.damaged import OnDamaged, damage_error
from penstock.consuming.options import ConsumeOptions, SubscribeOptions
from penstock.forms import (
    AsyncClosing,
    AsyncIterating,
    Closing,
    Iterating,
    both,
    finished,
    makes,
)
from penstock.leased import LeasedBatch
from penstock.requests import FRAME_OVERHEAD_MAX
from penstock.tables import (
    BYTES_AT_ONCE,
    PART_BYTES,
    RecordRange,
    TableSend,
    batches_of,
    schema_of,
)
from penstock.values import Damage, PullResult, StoredTable

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowBatchesCore:
    """Answers as Arrow batches: one each, or several where bodies unpack to more than 64 MiB."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._answer: Any = None  # that is not in pieces yet
        self._pieces: list[pa.RecordBatch] = []

    @property
    def _has_current(self) -> bool:
        """Whether all of the answer that was taken last is handed out."""
        return not self._pieces and self._answer is None

    @abstractmethod
    async def _next_answer(self) -> Any:
        """Return the next answer, which has ``records``; raises at the end, and what a read does."""

    @abstractmethod
    def _on_pieces(self, answer: Any) -> None:
        """Take in that the batches of an answer are made; after an interrupt it is called again."""

    async def _next_item(self) -> pa.RecordBatch:
        while not self._pieces:
            if self._answer is None:
                self._answer = await self._next_answer()
            pieces = batches_of(self._answer.records, self.schema)
            self._on_pieces(self._answer)
            # No call from here on: an interrupt finds the answer as it came, or all of its pieces.
            self._pieces = pieces
            self._answer = None
        batch = self._pieces[0]
        del self._pieces[0]
        return batch


class ArrowStreamCore(ArrowBatchesCore):
    """Batches that the reader sends ahead, in both forms."""

    def __init__(
        self,
        client: ConnectionCore,
        call: Call[PullResult],
        topic: str,
        queue_id: int,
        offset: int,
        schema: pa.Schema,
    ) -> None:
        super().__init__(schema)
        self._stream = PullStreamCore(client, call)
        self._topic = topic
        self._queue_id = queue_id
        self._before = self._after = offset  # the answer that was taken last
        self._damaged: deque[Damage] = deque()

    @property
    def next_offset(self) -> int:
        """Where to go on after the batch that was handed out last."""
        return self._after if self._has_current and not self._damaged else self._before

    @both
    async def close(self) -> None:
        """Read no more: the iteration ends. Closing twice does nothing."""
        await self._stream._close()

    async def _next_answer(self) -> PullResult:
        self._before = self._after
        if self._damaged:
            raise damage_error(
                self._damaged.popleft(),
                topic=self._topic,
                queue_id=self._queue_id,
                next_offset=self._after,
            )
        return await self._stream._next_item()

    def _on_pieces(self, answer: PullResult) -> None:
        self._damaged, self._after = deque(answer.damaged), answer.next_offset


class ArrowStream(ArrowStreamCore, Iterating["pa.RecordBatch"], Closing):
    """Batches that the reader sends ahead; made by `Client.pull_arrow`, used by one thread."""


class AsyncArrowStream(ArrowStreamCore, AsyncIterating["pa.RecordBatch"], AsyncClosing):
    """As `ArrowStream`, for one task."""


class ArrowConsumerCore(ArrowBatchesCore):
    """Batches of a topic's queues, in both forms."""

    def __init__(self, client: ConnectionCore, options: ConsumeOptions, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._consumer = ConsumerCore(client, options)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to consume by queue id, with the current batch consumed."""
        return self._consumer._positions(with_current=self._has_current)

    @property
    def deleted_counts(self) -> dict[int, int]:
        """The number of messages by queue id that retention deleted before this consumer read them."""
        return self._consumer.deleted_counts

    @both
    async def commit(self) -> None:
        """Commit the group's offsets, the current batch included once all of its answer is handed out."""
        await self._consumer._commit(with_current=self._has_current)

    @both
    async def close(self) -> None:
        """Stop pulling; with ``auto_commit`` commit the consumed batches. Closing twice does nothing."""
        await self._consumer._close()

    async def _next_answer(self) -> RecordRange:
        return await self._consumer._next_item()  # type: ignore[no-any-return]

    def _on_pieces(self, _: RecordRange) -> None:
        pass


class ArrowConsumer(ArrowConsumerCore, Iterating["pa.RecordBatch"], Closing):
    """Batches of a topic's queues; made by `Client.consume_arrow`, used by one thread.

    Offsets, `commit` and the end are those of `Consumer`, with a batch in the place of a record.
    """

    def __init__(self, client: ConnectionCore, options: ConsumeOptions, schema: pa.Schema) -> None:
        super().__init__(client, options, schema)
        finished(self._consumer._opened)


class AsyncArrowConsumer(ArrowConsumerCore, AsyncIterating["pa.RecordBatch"], AsyncClosing):
    """As `ArrowConsumer`, for one task."""


class ArrowSubscriptionCore(ArrowBatchesCore):
    """Batches leased to this member of a group, in both forms."""

    def __init__(
        self,
        client: ConnectionCore,
        options: SubscribeOptions,
        max_messages: int,
        schema: pa.Schema,
    ) -> None:
        super().__init__(schema)
        self._subscription = SubscriptionCore(client, options)
        self._max_messages = max_messages
        self.current: LeasedBatch | None = None

    def _leaving(self, kind: object) -> None:
        """Acknowledge what was handed out, or give it back; all of it if some was not handed out."""
        unseen = not self._has_current
        self._subscription._leaving(kind or unseen or None)

    def stop(self) -> None:
        """End the iteration after the messages in hand; any thread may call it."""
        self._subscription.stop()

    @both
    async def close(self) -> None:
        """Send the outcomes of settled messages and give the rest back. Closing twice does nothing."""
        await self._subscription._close()

    async def _next_answer(self) -> LeasedBatch:
        return await self._subscription._next_batch(self._max_messages)

    def _on_pieces(self, answer: LeasedBatch) -> None:
        self.current = answer


class ArrowSubscription(ArrowSubscriptionCore, Iterating["pa.RecordBatch"], Closing):
    """Batches leased to this member of a group; made by `Client.subscribe_arrow`, used by one thread.

    Leases, acknowledgements and the end are those of `Subscription`. ``current`` has the messages of the
    batch that was handed out last.
    """


class AsyncArrowSubscription(ArrowSubscriptionCore, AsyncIterating["pa.RecordBatch"], AsyncClosing):
    """As `ArrowSubscription`, for one task."""


class TableCalls(ConnectionCore):
    """Calls with Arrow's tables over a connection; they need the extra ``arrow``."""

    @makes(ArrowStream, AsyncArrowStream)
    def pull_arrow(
        self,
        topic: str,
        queue_id: int,
        offset: int = 0,
        *,
        columns: Sequence[str] | None = None,
        end_offset: int | None = None,
        max_bytes: int = BYTES_AT_ONCE,
        tag: str = "",
        follow: bool = False,
    ) -> tuple[Any, ...]:
        """Read one queue as ``pull_stream`` does, as a `pyarrow.RecordBatch` for each answer.

        ``columns`` names those that are built; docs/client.md has them all. The stream ends at ``end_offset``,
        or at the queue's end. A damaged record raises DataLoss after the others of its answer; the next
        iteration goes on. Raises InvalidArgument for a column that there is not.
        """
        schema = schema_of(columns)
        call = records.pull_stream(
            topic,
            queue_id,
            offset,
            max_bytes=max_bytes,
            tag=tag,
            follow=follow,
            end_offset=end_offset,
        )
        return call, topic, queue_id, offset, schema

    @makes(ArrowConsumer, AsyncArrowConsumer)
    def consume_arrow(
        self,
        topic: str,
        *,
        columns: Sequence[str] | None = None,
        group: str = "",
        queues: Iterable[int] | None = None,
        start: Literal["earliest", "latest"] | int | datetime = "earliest",
        tag: str = "",
        follow: bool = True,
        auto_commit: bool = True,
        commit_interval_ms: int = 1_000,
        max_bytes: int = BYTES_AT_ONCE,
        wait_ms: int = 10_000,
        on_damaged: OnDamaged | None = None,
    ) -> tuple[Any, ...]:
        """Iterate over a topic's queues as ``consume`` does, a `pyarrow.RecordBatch` of one queue at a time.

        A batch is consumed when the next one is asked for. ``columns`` is as in ``pull_arrow``.
        """
        schema = schema_of(columns)
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
            by_range=True,
        )
        return options, schema

    @makes(ArrowSubscription, AsyncArrowSubscription)
    def subscribe_arrow(
        self,
        topic: str,
        *,
        group: str,
        columns: Sequence[str] | None = None,
        max_messages: int = 1_024,
        tag: str = "",
        sql: str = "",
        prefetch_bytes: int = 32 << 20,
        lease_ms: int = 30_000,
        wait_ms: int = 10_000,
        idle_s: float | None = None,
        on_damaged: OnDamaged | None = None,
    ) -> tuple[Any, ...]:
        """Join a group as ``subscribe`` does: iterate over leased messages, up to ``max_messages`` a batch.

        A batch is acknowledged when the next one is asked for. ``current`` has its messages one by one, to
        give some back.
        """
        schema = schema_of(columns)
        options = SubscribeOptions(
            topic=topic,
            group=group,
            tag=tag,
            sql=sql,
            prefetch=2 * max_messages,
            prefetch_bytes=prefetch_bytes,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
            idle_s=idle_s,
            timeout_s=self.timeout_s,
            on_damaged=on_damaged,
        )
        return options, max_messages, schema

    @both
    async def produce_arrow(
        self,
        topic: str,
        table: Any,
        *,
        body: str = "body",
        keys: str = "keys",
        tag: str = "tag",
        properties: str = "properties",
        queue_id: str = "",
        delay_ms: str = "delay_ms",
        deliver_at_ms: str = "deliver_at_ms",
        token: str = "",
        timeout_s: float | None = None,
    ) -> StoredTable:
        """Store each row of a table as a message, in order; on return all are as durable as the flush mode says.

        ``table`` is a table of pyarrow, polars, pandas or DuckDB, or a `pyarrow.RecordBatchReader`, which is
        read as it is sent. Of ``body``, ``keys``, ``tag``, ``properties``, ``queue_id``, ``delay_ms`` and
        ``deliver_at_ms``, each the name of a column, the body alone has to be there. Without ``queue_id`` rows go
        to the topic's queues by the hash of their keys, those without keys in turn, 64 at a time. A row with a
        delay (milliseconds, or a duration) or a time of delivery (Unix milliseconds, or a timestamp with a zone)
        above 0 is delivered then.

        ``timeout_s`` bounds each request of a few MiB. Where one fails, rows before it are stored: raises
        TableNotStored, and the same call with its ``token`` and the same rows, which a reader no longer has, goes
        on and stores none twice. If the call has stored none, raises what the request did, such as InvalidArgument
        for a row that can be no message.
        """
        found = await self._send(topics.describe_topic(topic, timeout_s=timeout_s))
        send = TableSend(
            table,
            (body, keys, tag, properties, queue_id, delay_ms, deliver_at_ms),
            topic=topic,
            queue_count=found.topic.write_queue_count,
            part_bytes=min(PART_BYTES, self.request_bytes_max - FRAME_OVERHEAD_MAX),
            record_bytes_max=self.request_bytes_max - FRAME_OVERHEAD_MAX,
            born_ms=self.clock.now_ms(),
            token=token,
        )
        try:
            for part in send:
                call = produce.store_batch(
                    part,
                    bytes_max=self.request_bytes_max,
                    token=send.request_token,
                    timeout_s=timeout_s,
                )
                send.on_stored(await self._send(call))
        except Exception as error:
            failed = send.failed(error)
            if failed is error:
                raise
            raise failed from error
        return send.stored
