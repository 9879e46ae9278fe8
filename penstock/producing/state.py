"""State and decisions of a streaming producer; no I/O, no locks.

Messages gather in batches, each of one queue. A queue's open batch becomes a call to the writer when it
is big enough, has waited long enough, or is flushed.

1. With ``ordered``, a queue has at most one batch in flight. A refused batch that is sent again can
   therefore not be overtaken by a later one of its queue. While a queue waits for its answer its open
   batch keeps growing, up to ``BATCH_BYTES_MAX``, so that waiting costs no throughput.
2. A batch's attempts are those of any call that must be done once (`Attempts`): all carry one token, the
   writer stores the batch once. ``delivery_timeout_s`` from its first message on bounds them, but each batch
   has one attempt of a second. A batch that was sent and has no answer by then fails with UnknownOutcome.
3. At most ``max_in_flight`` batches are sealed and not yet answered, and beyond ``UNHURRIED_BYTES``
   messages are taken only while batches are answered in time; `has_room` says when to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import grpc

from penstock.addresses import Service
from penstock.batch import NO_PROPERTIES, Keys, properties_block, record_template
from penstock.calls.call import Attempts
from penstock.calls.produce import stored_batch
from penstock.errors import (
    ClientClosed,
    DeliveryFailed,
    InvalidArgument,
    PenstockError,
    QueueNotFound,
    RpcError,
    ServiceFailed,
    UnknownOutcome,
)
from penstock.producing.batches import ROOMY_MAX, ProducerBatch, QueueBatches
from penstock.producing.options import BATCH_BYTES_MAX, ProducerOptions
from penstock.producing.pace import Pace
from penstock.proxies import Way
from penstock.requests import check_size
from penstock.retry import RetryPolicy
from penstock.sequences import Sequences
from penstock.v1 import writer_pb2
from storage.clock import Clock

ERRORS_KEPT_MAX: Final = 100
RECORD_OVERHEAD_MAX: Final = 512  # bytes of a record that are neither body nor properties
UNHURRIED_BYTES: Final = 256 << 10  # without an answer: little enough to keep any writer waiting
BACKLOG_MAX: Final = 1  # sealed batches that are not in flight
DROPPED_MAX: Final = 16  # records at fault in one batch before the rest of it is given up too


class _Abandoned:
    """What an attempt fails with whose connection is left: another batch has had no answer over it."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "the connection was left, as it had brought no answer"

    def trailing_metadata(self) -> None:
        return None


ABANDONED: Final = _Abandoned()


class ProducerState:
    """The batches of one producer from their first message to their outcome."""

    def __init__(
        self,
        options: ProducerOptions,
        clock: Clock,
        policy: RetryPolicy,
        way_to: Callable[[Service], Way],
    ) -> None:
        self.options = options
        self._clock = clock
        self._policy = policy
        self._way_to = way_to
        self._sequences = Sequences(clock)
        self._queue_batches_max = 1 if options.ordered else options.max_in_flight
        self._queues: dict[tuple[str, int], QueueBatches] = {}
        self._pending: dict[QueueBatches, None] = {}  # queues with anything not in flight, in order
        self._in_flight: dict[ProducerBatch, None] = {}  # in the order in which they were sent
        self._sealed = 0
        self._unanswered_bytes = 0  # with those of open batches
        self._open_bytes = 0
        self._pace = Pace()
        self._next_queue: dict[str, int] = {}
        self._errors: list[PenstockError] = []
        self._failed_count = 0

    def has_room(self, now: float) -> bool:
        """Return whether another message may be added now."""
        if self._sealed >= self.options.max_in_flight:
            return False
        if self._unanswered_bytes < UNHURRIED_BYTES:
            return True
        if not self._in_flight or self._sealed - len(self._in_flight) > BACKLOG_MAX:
            return False
        return not self._pace.is_late(next(iter(self._in_flight)).sent_at, now)

    @property
    def _lingers(self) -> bool:
        """Whether small batches may wait for more: until together they leave no room for it."""
        return self._open_bytes < UNHURRIED_BYTES

    @property
    def in_flight_count(self) -> int:
        """Batches sent and not answered."""
        return len(self._in_flight)

    def choose_queue(self, topic: str, queue_count: int) -> int:
        """Return the queue for a message that names none: one after the other, batch by batch."""
        queue_id = self._next_queue.get(topic, 0) % queue_count
        queue = self._queues.get((topic, queue_id))
        if queue is not None and (
            queue.open is None or queue.open.size >= self.options.batch_bytes
        ):
            queue_id = (queue_id + 1) % queue_count
        self._next_queue[topic] = queue_id
        return queue_id

    def add(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int,
        now: float,
        now_ms: int,
        keys: Keys = (),
        tag: str = "",
        properties: Mapping[str, str] = NO_PROPERTIES,
        unique_key: str = "",
    ) -> tuple[ProducerBatch, int]:
        """Take a message in; return its batch and its place there. Nothing is sent yet."""
        block = properties_block(keys, tag, properties, unique_key)
        check_size(
            "body", len(body) + len(block) + RECORD_OVERHEAD_MAX, self.options.record_bytes_max
        )
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = QueueBatches(topic, queue_id)
        batch = queue.open or self._new_batch(queue, now, now_ms)
        record = batch.template.encode(body, block)
        if batch.records and batch.size + len(record) > BATCH_BYTES_MAX:
            self._seal(queue)
            batch = self._new_batch(queue, now, now_ms)
        if len(block) > ROOMY_MAX:
            batch.crowded.add(len(batch.records))
        size = len(record)
        # An interrupt (Ctrl-C) raises where a call returns: from here on there is one, the last step.
        batch.size += size
        self._unanswered_bytes += size
        self._open_bytes += size
        queue.open = batch
        self._queues[topic, queue_id] = queue
        self._pending[queue] = None
        batch.records.append(record)
        if not self.options.ordered and batch.size >= self.options.batch_bytes:
            self._seal(queue)
        return batch, len(batch.records) - 1

    def is_news(self, batch: ProducerBatch, index: int) -> bool:
        """Whether a message that was added changes when its queue's next batch is due.

        That is a batch's first one, and the one with which it is big enough to be sent. While the queue has
        enough in flight, their answers decide.
        """
        if batch.queue.in_flight >= self._queue_batches_max:
            return False
        big = self.options.batch_bytes
        return index == 0 or batch.size - len(batch.records[index]) < big <= batch.size

    def _new_batch(self, queue: QueueBatches, now: float, now_ms: int) -> ProducerBatch:
        template = record_template(queue.topic, queue.queue_id, born_timestamp_ms=now_ms)
        due_at = now + self.options.linger_ms / 1000
        return ProducerBatch(queue, now=now, due_at=due_at, template=template)

    def _seal(self, queue: QueueBatches) -> None:
        batch = queue.open
        assert batch is not None
        self._open_bytes -= batch.size
        queue.open = None
        self._sealed += 1
        queue.backlog.append(batch)

    def flush(self) -> list[ProducerBatch]:
        """Let every message that is here now go without waiting for more; return their batches."""
        batches = list(self._in_flight)
        for queue in self._pending:
            batches.extend(queue.backlog)
            if queue.open is not None:
                queue.open.due_at = 0.0
                batches.append(queue.open)
        return batches

    def next_batch(self, now: float) -> ProducerBatch | None:
        """Return the next batch to send, which is in flight from now on; None if none is due."""
        lingers = self._lingers
        for queue in self._pending:
            if queue.in_flight >= self._queue_batches_max or now < queue.not_before:
                continue
            if not queue.backlog:
                batch = queue.open
                if batch is None or not batch.records:
                    continue
                if lingers and batch.size < self.options.batch_bytes and now < batch.due_at:
                    continue
                if self._sealed >= self.options.max_in_flight:
                    continue
                self._seal(queue)
            batch = queue.backlog.popleft()
            batch.sent_at = now
            if batch.attempts is None:
                batch.attempts = self._attempts(batch, now)
            queue.in_flight += 1
            self._in_flight[batch] = None
            del self._pending[queue]
            self._keep_pending(queue)  # at the end, so that queues take turns
            return batch
        return None

    def _attempts(self, batch: ProducerBatch, now: float) -> Attempts:
        timeout_s = self.options.delivery_timeout_s
        left_s = max(batch.born_at + timeout_s - now, min(timeout_s, self._policy.answer_s_min))
        return Attempts(
            batch.call(), self._policy, timeout_s=left_s, clock=self._clock,
            sequences=self._sequences, way_to=self._way_to,
        )  # fmt: skip

    def next_due_s(self, now: float) -> float | None:
        """Return the seconds until a batch is due; None: only another message or an answer makes one due."""
        soonest: float | None = None
        for queue in self._pending:
            if queue.in_flight >= self._queue_batches_max:
                continue
            at = queue.not_before
            if not queue.backlog:
                if queue.open is None or self._sealed >= self.options.max_in_flight:
                    continue
                if self._lingers and queue.open.size < self.options.batch_bytes:
                    at = max(at, queue.open.due_at)
            soonest = at if soonest is None else min(soonest, at)
        return None if soonest is None else max(0.0, soonest - now)

    def answered(
        self, batch: ProducerBatch, answer: writer_pb2.ProduceBatchResponse, now: float
    ) -> None:
        """Take in that the writer has stored a batch."""
        if not self._has_landed(batch):
            return
        self._pace.answered(batch.sent_at, now)
        stored = stored_batch(answer)
        sent_count = len(batch.records) - len(batch.dropped)
        if stored.record_count == sent_count:
            batch.stored = stored
            self._finish(batch)
        else:
            text = f"the writer stored {stored.record_count} records of a batch of {sent_count}"
            self._fail(batch, UnknownOutcome(text))

    def failed(self, batch: ProducerBatch, error: RpcError, now: float) -> bool:
        """Take in what an attempt failed with: the batch is sent again, or has failed.

        Return whether its next attempt, and those of others on its connection, should go over another one.
        """
        if not self._has_landed(batch):
            return False
        assert batch.attempts is not None
        try:
            batch.queue.not_before = now + batch.attempts.after(error)
        except PenstockError as failure:
            if isinstance(failure, InvalidArgument) and self._drop(batch, failure):
                self._send_again(batch)
            else:
                self._fail(batch, failure)
            return False
        self._send_again(batch)
        return batch.attempts.is_silent

    def refused(self, batch: ProducerBatch, error: Exception) -> None:
        """Take in that an attempt could not be made: the batch has failed."""
        if self._has_landed(batch):
            assert batch.attempts is not None
            failure = error if isinstance(error, PenstockError) else ServiceFailed(str(error))
            failure.__cause__ = error if failure is not error else None
            self._fail(batch, batch.attempts.given_up(failure))

    def give_up(self, error: ClientClosed) -> list[ProducerBatch]:
        """Fail every batch, and return them: nothing is sent any more."""
        failed = list(self._in_flight)
        for batch in failed:
            self._has_landed(batch)
            assert batch.attempts is not None
            self._fail(batch, batch.attempts.given_up(error, is_unanswered=True))
        for queue in list(self._pending):
            if queue.open is not None:
                self._seal(queue)
            while queue.backlog:
                batch = queue.backlog.popleft()
                failed.append(batch)
                attempts = batch.attempts
                failure = error if attempts is None else attempts.given_up(error)
                self._fail(batch, failure)
        return failed

    def _has_landed(self, batch: ProducerBatch) -> bool:
        """Whether a batch was in flight until now, and is not any more."""
        if batch not in self._in_flight:
            return False
        del self._in_flight[batch]
        batch.queue.in_flight -= 1
        return True

    def _drop(self, batch: ProducerBatch, error: PenstockError) -> bool:
        """Take the one record at fault out of a refused batch; False if it leaves nothing."""
        live = batch.live()
        if len(batch.dropped) >= DROPPED_MAX:
            return False
        if not 0 <= error.record_index < len(live) or len(live) == 1:
            return False
        index = live[error.record_index]
        batch.end_attempts()  # without the record it is another request, which was never sent
        batch.dropped[index] = error
        batch.size -= len(batch.records[index])
        self._unanswered_bytes -= len(batch.records[index])
        self._note(error, 1)
        return True

    def _send_again(self, batch: ProducerBatch) -> None:
        batch.queue.backlog.appendleft(batch)
        self._pending[batch.queue] = None

    def take_failures(self) -> DeliveryFailed | None:
        """Return what failed since the last call, and forget it."""
        if not self._errors:
            return None
        failed = DeliveryFailed(self._errors, self._failed_count)
        self._errors, self._failed_count = [], 0
        return failed

    def _fail(self, batch: ProducerBatch, error: PenstockError) -> None:
        batch.error = error
        self._note(error, len(batch.records) - len(batch.dropped))
        self._finish(batch)

    def _note(self, error: PenstockError, message_count: int) -> None:
        self._failed_count += message_count
        if len(self._errors) < ERRORS_KEPT_MAX:
            self._errors.append(error)

    def _finish(self, batch: ProducerBatch) -> None:
        batch.finish()
        self._sealed -= 1
        self._unanswered_bytes -= batch.size
        self._keep_pending(batch.queue)

    def _keep_pending(self, queue: QueueBatches) -> None:
        if queue.backlog or queue.open is not None:
            self._pending[queue] = None
        else:
            self._pending.pop(queue, None)


def has_met_missing_queue(batch: ProducerBatch) -> bool:
    """Whether a batch failed as its queue does not exist: the topic's queue count has changed."""
    return isinstance(batch.error, QueueNotFound)
