"""The synchronous streaming producer: two threads around `ProducerState`.

grpc's own thread takes frames from `_frames` and sends them; ours opens the stream and reads the
answers. Both and the callers meet under ``_lock``, the one lock of the state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import grpc

from penstock import wire
from penstock.addresses import Service
from penstock.batch import NO_PROPERTIES, Keys
from penstock.channel import Home
from penstock.errors import (
    Cancelled,
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

WaitDone = Callable[[ProducerBatch, float | None], bool]
"""Waits until a batch has its outcome; False after a number of seconds."""


class ProducerConnection(Protocol):
    """A producer's view of its client."""

    clock: Clock
    retry: RetryPolicy

    def stub(self, method: wire.Method) -> Any: ...
    def renew(self, method: wire.Method, failed_stub: Any) -> None: ...
    def queue_count(self, topic: str) -> int: ...
    def forget_queue_count(self, topic: str) -> None: ...
    def wait_connected(self, service: Service, timeout_s: float) -> bool: ...
    def way_to(self, service: Service) -> Way: ...


class Handle:
    """The outcome of one message that was sent."""

    __slots__ = ("_batch", "_index", "_wait_done")

    def __init__(self, batch: ProducerBatch, index: int, wait_done: WaitDone) -> None:
        self._batch = batch
        self._index = index
        self._wait_done = wait_done

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done

    def result(self, timeout_s: float | None = None) -> Stored:
        """Wait for the outcome: return where the message is stored, or raise why it is not.

        Raises UnknownOutcome if nobody answered in time: the message may be stored. Raises DeadlineExceeded
        if the wait took longer than ``timeout_s``: the message is still on its way.
        """
        self._wait(timeout_s)
        return self._batch.result(self._index)

    def exception(self, timeout_s: float | None = None) -> PenstockError | None:
        """Wait for the outcome: return the error, None if the message is stored."""
        self._wait(timeout_s)
        return self._batch.failure(self._index)

    def _wait(self, timeout_s: float | None) -> None:
        if not self._batch.done and not self._wait_done(self._batch, timeout_s):
            raise DeadlineExceeded(f"no outcome within {timeout_s} s")


class Producer:
    """A stream of messages to the writer, batched in the background; made by `Client.producer`.

    ``send`` may be called from several threads. Leaving the context manager waits for every outcome
    and raises DeliveryFailed if any message was not stored and no ``flush`` has said so.
    """

    def __init__(self, client: ProducerConnection, options: ProducerOptions) -> None:
        self._home = Home()
        self._client = client
        self._state = ProducerState(options, client.clock)
        # Taken itself, not through the condition: an interrupt (Ctrl-C) within a condition's own method leaves it held.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._stream: Any = None
        self._stub: Any = None  # that opened it
        self._generation = 0
        self._refusing = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="penstock-producer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except PenstockError:
            if kind is None:
                raise

    @property
    def in_flight_count(self) -> int:
        """Batches sent and not answered yet."""
        with self._lock:
            return self._state.in_flight_count

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
        """Take a message for sending; blocks while ``max_in_flight`` batches are not answered.

        Without ``queue_id`` the topic's queues are taken in turn, a batch each. InvalidArgument is
        raised at once for a message that breaks a rule.
        """
        self._home.check()
        queue_count = 0 if queue_id is not None else self._client.queue_count(topic)
        monotonic = self._client.clock.monotonic
        with self._lock:
            now = monotonic()
            if not self._state.has_room(now):
                self._changed.notify_all()
                self._wait_for(lambda: self._state.has_room(monotonic()) or self._refusing)
                now = monotonic()
            if self._refusing:
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
                self._changed.notify_all()
            return Handle(batch, index, self._wait_done)

    def flush(self, timeout_s: float | None = None) -> None:
        """Send what is here without lingering and wait for every outcome.

        Raises DeliveryFailed with the errors since the last flush, DeadlineExceeded after
        ``timeout_s``.
        """
        self._home.check()
        with self._lock:
            batches = self._state.flush()
            self._changed.notify_all()
            if not self._wait_for(lambda: all(batch.done for batch in batches), timeout_s):
                raise DeadlineExceeded(f"not everything has an outcome within {timeout_s} s")
            failed = self._state.take_failures()
        if failed is not None:
            raise failed

    def close(self, timeout_s: float | None = None) -> None:
        """Flush, then end the stream; closing twice does nothing. Raises as `flush` does."""
        self._home.check()
        with self._lock:
            if self._refusing:
                return
            self._refusing = True
            self._changed.notify_all()
        try:
            self.flush(timeout_s)
        finally:
            with self._lock:
                self._closing = True
                stream, idle = self._stream, self._state.is_idle
                self._changed.notify_all()
            if idle:
                self._thread.join(STREAM_END_S)
            if stream is not None:
                stream.cancel()
            self._thread.join()

    def _wait_done(self, batch: ProducerBatch, timeout_s: float | None) -> bool:
        """Wait until a batch has its outcome; False after ``timeout_s``."""
        self._home.check()
        with self._lock:
            return self._wait_for(lambda: batch.done, timeout_s)

    def _wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait, under the lock, and cancel a stream whose writer stopped answering."""
        clock = self._client.clock
        deadline = float("inf") if timeout_s is None else clock.monotonic() + timeout_s
        while not predicate():
            left = deadline - clock.monotonic()
            if left <= 0:
                return False
            if not self._changed.wait(min(left, OVERDUE_CHECK_S)):
                stream, now = self._stream, clock.monotonic()
                if stream is not None and self._state.is_overdue(now):
                    stream.cancel()
                elif stream is not None and self._state.is_silent(now):
                    self._stream = None  # cancelled once
                    self._client.renew(wire.PRODUCE_STREAM, self._stub)
                    stream.cancel()
        return True

    def _run(self) -> None:
        attempt = 0
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._closing or not self._state.is_idle)
                if self._closing:
                    break
            try:
                connected = self._client.wait_connected("writer", CONNECT_ATTEMPT_S)
                error: PenstockError = Unavailable("the writer is not reachable")
                if connected:
                    error = self._talk()
                    attempt = 0
            except PenstockError as failure:
                error = failure
            except ValueError as failure:  # grpc: the channel was closed under us
                error = ClientClosed(str(failure))
            if self._after_break(error):
                break
            attempt += 1
            with self._lock:
                self._changed.wait_for(
                    lambda: self._closing, self._client.retry.backoff_ms(attempt) / 1000
                )
        with self._lock:
            self._state.settle(
                ClientClosed("the producer was closed"), self._client.clock.monotonic()
            )
            self._changed.notify_all()

    def _after_break(self, error: PenstockError) -> bool:
        """Settle what the break decides; True if the producer cannot go on."""
        final = isinstance(error, ClientClosed)
        now = self._client.clock.monotonic()
        with self._lock:
            self._stream = None
            self._generation += 1
            self._state.settle(error, now)
            if final:
                self._refusing = self._closing = True
            self._changed.notify_all()
            return self._closing

    def _talk(self) -> PenstockError:
        """Open a stream and read its answers until it ends; return why it did."""
        with self._lock:
            generation = self._generation
        stub = self._client.stub(wire.PRODUCE_STREAM)
        stream = stub(self._frames(generation))
        with self._lock:
            self._stream, self._stub = stream, stub
        try:
            for response in stream:
                with self._lock:
                    done = self._state.answer(response, self._client.clock.monotonic())
                    for topic in self._state.topics_changed(done):
                        self._client.forget_queue_count(topic)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            failure = with_way(from_rpc_error(error), self._client.way_to("writer"))
            failure.__cause__ = error
            if isinstance(failure, Cancelled) and self._closing:
                return ClientClosed("the producer was closed")
            return failure
        except PenstockError as failure:
            stream.cancel()
            return failure
        return ServiceFailed("the writer ended the stream")

    def _frames(self, generation: int) -> Iterator[bytes]:
        while True:
            with self._lock:
                while True:
                    if self._generation != generation or (self._closing and self._state.is_idle):
                        return
                    now = self._client.clock.monotonic()
                    batch = self._state.next_frame(now)
                    if batch is not None:
                        break
                    self._changed.wait(self._state.next_due_s(now))
                frame = batch.frame()
            yield frame
