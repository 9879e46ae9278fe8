"""The asyncio streaming producer: a task for each batch that is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from typing import Any, Protocol

import grpc

from penstock import wire
from penstock.addresses import Service
from penstock.batch import NO_PROPERTIES, Keys
from penstock.calls.topics import QueueCounts
from penstock.channel import CALL_FAILED, AsyncHome, AsyncServiceChannels, failure_of
from penstock.errors import ClientClosed, DeadlineExceeded, PenstockError
from penstock.producing.batches import ProducerBatch
from penstock.producing.options import ProducerOptions
from penstock.producing.state import ABANDONED, ProducerState, has_met_missing_queue
from penstock.proxies import Way
from penstock.retry import RetryPolicy
from penstock.values import Stored
from storage.clock import Clock


class AsyncProducerConnection(Protocol):
    """A producer's view of its client."""

    clock: Clock
    retry: RetryPolicy
    queue_counts: QueueCounts
    channels: AsyncServiceChannels

    async def queue_count(self, topic: str) -> int: ...
    def way_to(self, service: Service) -> Way: ...


class AsyncHandle:
    """The outcome of one message; await it for the `Stored` or the error."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done

    def __await__(self) -> Generator[Any, None, Stored]:
        return self.result().__await__()

    async def result(self, timeout_s: float | None = None) -> Stored:
        """Wait for the outcome as ``await`` on the handle does, for ``timeout_s`` at most.

        Raises UnknownOutcome if nobody answered in time: the message may be stored. Raises DeadlineExceeded
        if the wait took longer than ``timeout_s``: the message is still on its way.
        """
        await self._wait(timeout_s)
        return self._batch.result(self._index)

    async def exception(self, timeout_s: float | None = None) -> PenstockError | None:
        """Wait for the outcome: return the error, None if the message is stored."""
        await self._wait(timeout_s)
        return self._batch.failure(self._index)

    async def _wait(self, timeout_s: float | None) -> None:
        if self._batch.done:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._batch.waiters.append(waiter)
        try:
            async with asyncio.timeout(timeout_s):
                await waiter
        except TimeoutError:
            raise DeadlineExceeded(f"no outcome within {timeout_s} s") from None


class AsyncProducer:
    """A stream of messages to the writer, batched in the background; made by `AsyncClient.producer`.

    It behaves as `Producer` does; where that blocks, this awaits. Use it as an async context
    manager, within one event loop.
    """

    def __init__(self, client: AsyncProducerConnection, options: ProducerOptions) -> None:
        self._home = AsyncHome()
        self._client = client
        self._state = ProducerState(options, client.clock, client.retry, client.way_to)
        self._changed = asyncio.Condition()
        self._is_closed = False  # by its user
        self._has_ended = False  # nothing is sent any more
        self._timer: asyncio.TimerHandle | None = None  # for the next batch that time makes due
        self._calls: set[asyncio.Task[None]] = set()
        self._under_way: dict[Any, Any] = {}  # the stub of each of grpc's calls

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except PenstockError:
            if kind is None:
                raise

    @property
    def in_flight_count(self) -> int:
        """Batches sent and not answered yet."""
        return self._state.in_flight_count

    @property
    def _refuses(self) -> bool:
        return self._is_closed or self._has_ended

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        unique_key: str = "",
        queue_id: int | None = None,
    ) -> AsyncHandle:
        """Take a message for sending.

        It waits while ``max_in_flight`` batches are not answered, and sooner if the writer answers slowly.
        """
        self._home.check()
        queue_count = 0 if queue_id is not None else await self._client.queue_count(topic)
        monotonic = self._client.clock.monotonic
        now = monotonic()
        if not self._state.has_room(now):
            self._send_due()
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._state.has_room(monotonic()) or self._refuses
                )
            now = monotonic()
        if self._refuses:
            raise ClientClosed("the producer is closed")
        if queue_id is None:
            queue_id = self._state.choose_queue(topic, queue_count)
        batch, index = self._state.add(
            topic,
            body,
            queue_id=queue_id,
            now=now,
            now_ms=self._client.clock.now_ms(),
            keys=keys,
            tag=tag,
            properties=properties,
            unique_key=unique_key,
        )
        if self._state.is_news(batch, index):
            self._send_due()
        return AsyncHandle(batch, index)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is here without lingering and wait for every outcome.

        Raises DeliveryFailed with the errors since the last flush, DeadlineExceeded after
        ``timeout_s``.
        """
        self._home.check()
        batches = self._state.flush()
        self._send_due()
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: all(batch.done for batch in batches))
        except TimeoutError:
            raise DeadlineExceeded(f"not everything has an outcome within {timeout_s} s") from None
        failed = self._state.take_failures()
        if failed is not None:
            raise failed

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then stop sending; closing twice does nothing. Raises as `flush` does."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._announce(())
        try:
            await self.flush(timeout_s)
        finally:
            await self._end(ClientClosed("the producer was closed"))

    async def _end(self, error: ClientClosed) -> None:
        """Send no more; what has no outcome has failed."""
        self._has_ended = True
        failed = self._state.give_up(error)
        if self._timer is not None:
            self._timer.cancel()
        for call in self._calls - {asyncio.current_task()}:
            call.cancel()
        await self._announce(failed)

    def _send_due(self) -> None:
        """Send the batches that are due, and come back when time makes the next one due."""
        now = self._client.clock.monotonic()
        while (batch := self._state.next_batch(now)) is not None:
            call = asyncio.create_task(self._send(batch))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_s = self._state.next_due_s(now)
        if due_s is not None:
            self._timer = asyncio.get_running_loop().call_later(due_s, self._send_due)

    async def _send(self, batch: ProducerBatch) -> None:
        """Make one attempt to have a batch stored, and send what is due then."""
        attempts, clock = batch.attempts, self._client.clock
        assert attempts is not None
        await self._announce(())  # there may be room now
        try:
            stub = self._client.channels.stub(wire.PRODUCE_BATCH, "iterators")
            call = stub(attempts.request(), timeout=attempts.answer_s())
            self._under_way[call] = stub
            try:
                answer = await call
            finally:
                del self._under_way[call]
        except CALL_FAILED as error:
            failure = failure_of(error)  # raises where this task is cancelled
            was_left = isinstance(error, asyncio.CancelledError)
            if self._state.failed(batch, ABANDONED if was_left else failure, clock.monotonic()):
                self._client.channels.renew(wire.PRODUCE_BATCH, stub)
                for other in [each for each, its in self._under_way.items() if its is stub]:
                    other.cancel()
            if has_met_missing_queue(batch):
                self._client.queue_counts.forget(batch.queue.topic)
        except (ClientClosed, grpc.aio.UsageError) as error:
            await self._end(ClientClosed(str(error)))
        except Exception as error:  # noqa: BLE001  the batch has failed, and others may be sent
            self._state.refused(batch, error)
        else:
            self._state.answered(batch, answer, clock.monotonic())
        self._send_due()
        await self._announce((batch,) if batch.done else ())

    async def _announce(self, done: Iterable[ProducerBatch]) -> None:
        for batch in done:
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            batch.waiters.clear()
        async with self._changed:
            self._changed.notify_all()
