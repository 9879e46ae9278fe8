"""The streaming producer: batches as calls, several under way, answered in grpc's threads.

A thread of ours sends the batches that become due by time or by a message. The thread of grpc's that brings
an answer sends those that the answer makes due. All meet under ``_lock``, the one lock of the state. Python
hands the interpreter over late while another thread is busy, so a batch passes as few threads as possible.
For an event loop it is the same: only the caller waits differently.
"""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Protocol

import grpc

from penstock import wire
from penstock.addresses import Service
from penstock.batch import NO_PROPERTIES, Keys
from penstock.calls.topics import QueueCounts
from penstock.channel import AsyncHome, Home, ServiceChannels
from penstock.errors import ClientClosed, DeadlineExceeded, PenstockError, RpcError
from penstock.forms import OfLoop, OfThreads, both, finished
from penstock.producing.batches import ProducerBatch
from penstock.producing.handles import AsyncHandle, Handle
from penstock.producing.options import ProducerOptions
from penstock.producing.state import ABANDONED, ProducerState, has_met_missing_queue
from penstock.proxies import Way
from penstock.retry import RetryPolicy
from storage.clock import Clock


class ProducerConnection(Protocol):
    """A producer's view of its client."""

    clock: Clock
    retry: RetryPolicy
    queue_counts: QueueCounts
    channels: ServiceChannels

    def _home(self) -> Home | AsyncHome: ...
    async def _queue_count(self, topic: str) -> int: ...
    def way_to(self, service: Service) -> Way: ...


class ProducerCore:
    """A stream of messages to the writer, batched in the background, in both forms."""

    def __init__(self, client: ProducerConnection, options: ProducerOptions) -> None:
        client.channels.allow(options.delivery_timeout_s)
        self._home = client._home()
        self._client = client
        self._state = ProducerState(options, client.clock, client.retry, client.way_to)
        # Taken itself, not through a condition: an interrupt (Ctrl-C) within a condition's own method leaves it held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)  # for callers: an outcome, or room
        self._waiting: list[Callable[[], None]] = []  # of an event loop: called when that changes
        self._due = threading.Condition(self._lock)  # for the thread: when the next batch is due
        self._looks_at = 0.0  # when the thread looks by itself what is due
        self._calls: dict[Any, Any] = {}  # the stub of each of grpc's calls under way
        self._is_closed = False  # by its user
        self._has_ended = False  # nothing is sent any more
        self._thread = threading.Thread(target=self._run, name="penstock-producer", daemon=True)
        self._thread.start()

    @property
    def in_flight_count(self) -> int:
        """Batches sent and not answered yet."""
        with self._lock:
            return self._state.in_flight_count

    def _take(
        self,
        topic: str,
        body: bytes,
        keys: Keys,
        tag: str,
        properties: Mapping[str, str],
        unique_key: str,
        queue_id: int | None,
        queue_count: int,
    ) -> tuple[ProducerBatch, int] | None:
        """Take a message, under the lock; return its batch and its place there, None where there is no room."""
        if self._is_closed or self._has_ended:
            raise ClientClosed("the producer is closed")
        clock = self._client.clock
        now = clock.monotonic()
        if not self._state.has_room(now):
            self._look(now)
            return None
        if queue_id is None:
            queue_id = self._state.choose_queue(topic, queue_count)
        taken = self._state.add(
            topic,
            body,
            queue_id=queue_id,
            now=now,
            now_ms=clock.now_ms(),
            keys=keys,
            tag=tag,
            properties=properties,
            unique_key=unique_key,
        )
        if self._state.is_news(*taken):
            self._look(now)
        return taken

    async def _flush(self, timeout_s: float | None = None) -> None:
        """Send what is here without lingering and wait for every outcome.

        Raises DeliveryFailed with the errors since the last flush, DeadlineExceeded after
        ``timeout_s``.
        """
        self._home.check()
        with self._lock:
            batches = self._state.flush()
            self._look(self._client.clock.monotonic())
        if not await self._wait_for(lambda: all(batch.done for batch in batches), timeout_s):
            raise DeadlineExceeded(f"not everything has an outcome within {timeout_s} s")
        with self._lock:
            failed = self._state.take_failures()
        if failed is not None:
            raise failed

    flush = both(_flush)

    async def _close(self, timeout_s: float | None = None) -> None:
        """Flush, then stop sending; closing twice does nothing. Raises as `flush` does."""
        self._home.check()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._tell()
        try:
            await self._flush(timeout_s)
        finally:
            self._end(ClientClosed("the producer was closed"))

    close = both(_close)

    def _end(self, error: ClientClosed) -> None:
        """Send no more; what has no outcome has failed."""
        with self._lock:
            self._has_ended = True
            self._state.give_up(error)
            calls = list(self._calls)
            self._due.notify()
            self._tell()
        for call in calls:
            call.cancel()

    @abstractmethod
    async def _wait_for(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until a condition holds under the lock; False after ``timeout_s``."""

    @abstractmethod
    async def wait_done(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until a batch has its outcome; False after ``timeout_s``."""

    def _tell(self) -> None:
        """Wake who waits for an outcome or for room, under the lock."""
        self._changed.notify_all()
        for wake in self._waiting:
            wake()
        self._waiting.clear()

    def _run(self) -> None:
        """Send what becomes due, until the producer is closed."""
        monotonic = self._client.clock.monotonic
        while True:
            with self._lock:
                while (batch := self._state.next_batch(monotonic())) is None:
                    if self._has_ended:
                        return
                    now = monotonic()
                    due_s = self._state.next_due_s(now)
                    self._looks_at = float("inf") if due_s is None else now + due_s
                    self._due.wait(due_s)
                self._tell()  # there may be room now
            self._send(batch)

    def _look(self, now: float) -> None:
        """Have the thread look what is due, unless it does by itself early enough."""
        due_s = self._state.next_due_s(now)
        if due_s is not None and now + due_s < self._looks_at:
            self._due.notify()

    def _send(self, batch: ProducerBatch) -> None:
        """Make one attempt to have a batch stored."""
        attempts = batch.attempts
        if attempts is None:  # the producer has been closed
            return
        try:
            stub = self._client.channels.stub(wire.PRODUCE_BATCH, "iterators")
            call = stub.future(attempts.request(), timeout=attempts.answer_s())
        except ClientClosed as error:
            self._end(error)
            return
        except Exception as error:  # noqa: BLE001  the batch has failed, and others may be sent
            with self._lock:
                self._state.refused(batch, error)
                self._look(self._client.clock.monotonic())
                self._tell()
            return
        with self._lock:
            self._calls[call] = stub
        call.add_done_callback(partial(self._answered, batch, stub))

    def _answered(self, batch: ProducerBatch, stub: Any, call: Any) -> None:
        """Take in what became of an attempt, and send what is due now."""
        failure: RpcError | None = None
        try:
            answer = call.result()
        except (
            grpc.FutureCancelledError
        ):  # its connection was left; or by `_end`, and nothing is open
            failure = ABANDONED
        except grpc.RpcError as error:
            failure = error
        due: list[ProducerBatch] = []
        left: list[Any] = []
        is_silent = False
        with self._lock:
            self._calls.pop(call, None)
            now = self._client.clock.monotonic()
            if failure is not None:
                is_silent = self._state.failed(batch, failure, now)
                left = [each for each, its in self._calls.items() if is_silent and its is stub]
                if has_met_missing_queue(batch):
                    self._client.queue_counts.forget(batch.queue.topic)
            else:
                self._state.answered(batch, answer, now)
            while (following := self._state.next_batch(now)) is not None:
                due.append(following)
            self._look(now)
            self._tell()
        if is_silent:
            self._client.channels.renew(wire.PRODUCE_BATCH, stub)
        for other in left:
            other.cancel()
        for following in due:
            self._send(following)


class Producer(ProducerCore, OfThreads):
    """A stream of messages to the writer, batched in the background; made by `Client.producer`.

    ``send`` may be called from several threads. Leaving the context manager waits for every outcome
    and raises DeliveryFailed if any message was not stored and no ``flush`` has said so.
    """

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except PenstockError:
            if kind is None:
                raise

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        unique_key: str = "",
        queue_id: int | None = None,
    ) -> Handle:
        """Take a message for sending.

        It blocks while ``max_in_flight`` batches are not answered, and sooner if the writer answers slowly.
        Without ``queue_id`` the topic's queues are taken in turn, a batch each. InvalidArgument is raised at
        once for a message that breaks a rule.
        """
        self._home.check()
        count = 0 if queue_id is not None else self._client.queue_counts.known(topic)
        if count is None:
            count = finished(self._client._queue_count, topic)
        with self._lock:
            while True:
                taken = self._take(topic, body, keys, tag, properties, unique_key, queue_id, count)
                if taken is not None:
                    return Handle(*taken, self)
                self._changed.wait()

    async def _close(self, timeout_s: float | None = None) -> None:
        """Flush, then stop sending; closing twice does nothing. Raises as `flush` does."""
        try:
            await super()._close(timeout_s)
        finally:
            self._thread.join()

    close = both(_close)

    async def _wait_for(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        with self._lock:
            return self._changed.wait_for(holds, timeout_s)

    async def wait_done(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until a batch has its outcome; False after ``timeout_s``."""
        self._home.check()
        return await self._wait_for(lambda: batch.done, timeout_s)


class AsyncProducer(ProducerCore, OfLoop):
    """A stream of messages to the writer, batched in the background; made by `AsyncClient.producer`.

    It behaves as `Producer` does; where that blocks, this awaits. Use it as an async context
    manager, within one event loop.
    """

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.close()
        except PenstockError:
            if kind is None:
                raise

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
        if monotonic() >= self._turn_at:
            await self._give_turn()
        count = 0 if queue_id is not None else await self._client._queue_count(topic)
        while True:
            with self._lock:
                taken = self._take(topic, body, keys, tag, properties, unique_key, queue_id, count)
                if taken is not None:
                    return AsyncHandle(*taken, self)
                self._waiting.append(_setting(told := asyncio.Event()))
            await told.wait()

    async def _wait_for(self, holds: Callable[[], bool], timeout_s: float | None) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while True:
                    with self._lock:
                        if holds():
                            return True
                        self._waiting.append(_setting(told := asyncio.Event()))
                    await told.wait()
        return False

    async def wait_done(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until a batch has its outcome; False after ``timeout_s``."""
        self._home.check()
        with self._lock:
            if batch.done:
                return True
            batch.waiting.append(_setting(told := asyncio.Event()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await told.wait()
        return batch.done


def _setting(event: asyncio.Event) -> Callable[[], None]:
    """Return what sets an event of the running loop from any thread."""
    loop = asyncio.get_running_loop()

    def wake() -> None:
        with suppress(RuntimeError):  # nobody waits in a loop that is closed
            loop.call_soon_threadsafe(event.set)

    return wake
