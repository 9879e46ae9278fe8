"""The asyncio streaming producer: two tasks around `ProducerState`."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import grpc

from penstock import wire
from penstock.addresses import Service
from penstock.batch import NO_PROPERTIES, Keys
from penstock.channel import AsyncHome, is_cancelled
from penstock.errors import (
    ClientClosed,
    DeadlineExceeded,
    PenstockError,
    ServiceFailed,
    Unavailable,
    from_rpc_error,
)
from penstock.producing.batches import ProducerBatch
from penstock.producing.options import (
    CONNECT_ATTEMPT_S,
    OVERDUE_CHECK_S,
    STREAM_END_S,
    ProducerOptions,
)
from penstock.producing.state import ProducerState
from penstock.proxies import Way, with_way
from penstock.retry import RetryPolicy
from penstock.values import Stored
from storage.clock import Clock


class AsyncProducerConnection(Protocol):
    """A producer's view of its client."""

    clock: Clock
    retry: RetryPolicy

    def stub(self, method: wire.Method) -> Any: ...
    def renew(self, method: wire.Method, failed_stub: Any) -> None: ...
    async def queue_count(self, topic: str) -> int: ...
    def forget_queue_count(self, topic: str) -> None: ...
    async def wait_connected(self, service: Service, timeout_s: float) -> bool: ...
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
        if not self._batch.done:
            waiter = asyncio.get_running_loop().create_future()
            self._batch.waiters.append(waiter)
            yield from waiter
        return self._batch.result(self._index)

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
        self._state = ProducerState(options, client.clock)
        self._changed = asyncio.Condition()
        self._wake_sender = asyncio.Event()
        self._refusing = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None

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
        """Take a message for sending; waits while ``max_in_flight`` batches are not answered."""
        self._home.check()
        queue_count = 0 if queue_id is not None else await self._client.queue_count(topic)
        monotonic = self._client.clock.monotonic
        now = monotonic()
        if not self._state.has_room(now):
            self._wake_sender.set()
            async with self._changed:
                await self._changed.wait_for(
                    lambda: self._state.has_room(monotonic()) or self._refusing
                )
            now = monotonic()
        if self._refusing:
            raise ClientClosed("the producer is closed")
        if self._task is None:
            self._task = asyncio.create_task(self._run())
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
            self._wake_sender.set()
        return AsyncHandle(batch, index)

    async def flush(self, timeout_s: float | None = None) -> None:
        """Send what is here without lingering and wait for every outcome.

        Raises DeliveryFailed with the errors since the last flush, DeadlineExceeded after
        ``timeout_s``.
        """
        self._home.check()
        batches = self._state.flush()
        self._wake_sender.set()
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: all(batch.done for batch in batches))
        except TimeoutError:
            raise DeadlineExceeded(f"not everything has an outcome within {timeout_s} s") from None
        failed = self._state.take_failures()
        if failed is not None:
            raise failed

    async def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream; closing twice does nothing. Raises as `flush` does."""
        if self._refusing:
            return
        self._refusing = True
        await self._announce(())
        try:
            await self.flush(timeout_s)
        finally:
            self._closing = True
            self._wake_sender.set()
            if self._task is not None:
                if self._state.is_idle:
                    await asyncio.wait({self._task}, timeout=STREAM_END_S)
                self._task.cancel()
                await asyncio.wait({self._task})
            await self._settle(ClientClosed("the producer was closed"))

    async def _run(self) -> None:
        """Keep a stream until the producer is closed; nothing waits for an outcome after that."""
        try:
            await self._keep_stream()
        finally:
            await self._settle(ClientClosed("the producer was closed"))

    async def _keep_stream(self) -> None:
        attempt = 0
        while True:
            await self._wake_sender.wait()
            if self._closing:
                return
            try:
                if await self._client.wait_connected("writer", CONNECT_ATTEMPT_S):
                    error = await self._talk()
                    attempt = 0
                else:
                    error = Unavailable("the writer is not reachable")
            except PenstockError as failure:
                error = failure
            await self._settle(error)
            if self._closing:
                return
            attempt += 1
            await asyncio.sleep(self._client.retry.backoff_ms(attempt) / 1000)
            if self._state.is_idle and not self._closing:
                self._wake_sender.clear()

    async def _talk(self) -> PenstockError:
        """Open a stream, send and read until it ends; return why it did."""
        stub = self._client.stub(wire.PRODUCE_STREAM)
        stream = stub()
        sender = asyncio.create_task(self._send_frames(stream))
        watch = asyncio.create_task(self._watch(stream, stub))
        try:
            while True:
                response = await stream.read()
                if response is grpc.aio.EOF:  # type: ignore[attr-defined]
                    return ServiceFailed("the writer ended the stream")
                done = self._state.answer(response, self._client.clock.monotonic())
                for topic in self._state.topics_changed(done):
                    self._client.forget_queue_count(topic)
                await self._announce(done)
        except grpc.aio.AioRpcError as error:
            failure = with_way(from_rpc_error(error), self._client.way_to("writer"))
            failure.__cause__ = error
            return failure
        except PenstockError as failure:
            return failure
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            if watch.done():
                return DeadlineExceeded("the writer did not answer in time")
            return Unavailable("the connection of the stream was closed")
        finally:
            stream.cancel()
            sender.cancel()
            watch.cancel()
            await asyncio.gather(sender, watch, return_exceptions=True)

    async def _watch(self, stream: Any, stub: Any) -> None:
        """Cancel a stream whose writer stopped answering."""
        monotonic = self._client.clock.monotonic
        while not self._state.is_overdue(monotonic()):
            if self._state.is_silent(monotonic()):
                self._client.renew(wire.PRODUCE_STREAM, stub)
                break
            await asyncio.sleep(OVERDUE_CHECK_S)
        stream.cancel()

    async def _send_frames(self, stream: Any) -> None:
        while True:
            now = self._client.clock.monotonic()
            self._wake_sender.clear()
            batch = self._state.next_frame(now)
            if batch is not None:
                await stream.write(batch.frame())
                continue
            if self._closing:
                await stream.done_writing()
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(self._state.next_due_s(now)):
                    await self._wake_sender.wait()

    async def _announce(self, done: Iterable[ProducerBatch]) -> None:
        for batch in done:
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            batch.waiters.clear()
        self._wake_sender.set()
        async with self._changed:
            self._changed.notify_all()

    async def _settle(self, error: PenstockError) -> None:
        done = self._state.settle(error, self._client.clock.monotonic())
        if isinstance(error, ClientClosed):
            self._refusing = self._closing = True
        await self._announce(done)
