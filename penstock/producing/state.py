"""State and decisions of a streaming producer; no I/O, no locks, no clock of its own.

Messages gather in batches, each of one queue. A queue's open batch becomes a frame of the stream when
it is big enough, has waited long enough, or is flushed.

1. Frames are answered in the order in which they were sent: ``_in_flight`` is first in, first out.
2. With ``ordered``, a queue has at most one frame in flight. A refused frame that is sent again can
   therefore not be overtaken by a later one of its queue. While a queue waits for its answer its open
   batch keeps growing, up to ``FRAME_BYTES_MAX``, so that waiting costs no throughput.
3. A frame is sent from the moment `next_frame` returns it, and keeps its sequence from then on.
   When the stream breaks, sent frames without an answer are sent again before the others, in their
   order: the writer stores none twice. Those without an answer in all of ``delivery_timeout_s`` fail
   with UnknownOutcome.
4. At most ``max_in_flight`` frames are sealed and not yet answered, and beyond ``UNHURRIED_BYTES``
   messages are taken only while frames are answered in time; `has_room` says when to stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final

import grpc

from penstock.batch import NO_PROPERTIES, Keys, properties_block, record_template
from penstock.calls.call import produce_error
from penstock.calls.produce import stored_batch
from penstock.errors import (
    ClientClosed,
    DeliveryFailed,
    FailedPrecondition,
    InvalidArgument,
    PenstockError,
    QueueNotFound,
    ResourceExhausted,
    ServiceFailed,
    Unimplemented,
    UnknownOutcome,
    from_failure,
)
from penstock.producing.batches import ROOMY_MAX, ProducerBatch, QueueBatches
from penstock.producing.options import FRAME_BYTES_MAX, ProducerOptions
from penstock.producing.pace import Pace
from penstock.requests import check_size
from penstock.retry import SLOW_BYTES_S
from penstock.sequences import Sequences
from penstock.v1 import writer_pb2
from storage.clock import Clock

ERRORS_KEPT_MAX: Final = 100
RECORD_OVERHEAD_MAX: Final = 512  # bytes of a record that are neither body nor properties
UNHURRIED_BYTES: Final = (
    256 << 10
)  # not answered, and little enough to keep any writer waiting for more
ATTEMPTS: Final = 3  # within the delivery timeout, while a writer is silent
SILENT_S_MIN: Final = 1.0
BACKLOG_MAX: Final = 1  # sealed frames that wait for the stream
DROPPED_MAX: Final = 16  # records at fault in one batch before the rest of it is given up too


def _ends_waiting(error: PenstockError) -> bool:
    """Whether what was not sent yet has nothing to wait for after a stream ended so."""
    return isinstance(error, ClientClosed | FailedPrecondition | Unimplemented)


class ProducerState:
    """The batches of one producer from their first message to their outcome."""

    def __init__(self, options: ProducerOptions, clock: Clock) -> None:
        self.options = options
        self._sequences = Sequences(clock)
        self._queue_frames_max = 1 if options.ordered else options.max_in_flight
        self._queues: dict[tuple[str, int], QueueBatches] = {}
        self._pending: dict[QueueBatches, None] = {}  # queues with anything not in flight, in order
        self._in_flight: deque[ProducerBatch] = deque()
        self._sealed = 0
        self._unanswered_bytes = 0  # with those of open batches
        self._open_bytes = 0
        self._pace = Pace()
        self._answered_at = float("-inf")  # when the last answer came
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
        return not self._pace.is_late(self._in_flight[0].sent_at, now)

    @property
    def _lingers(self) -> bool:
        """Whether small batches may wait for more: until together they leave no room for it."""
        return self._open_bytes < UNHURRIED_BYTES

    @property
    def is_idle(self) -> bool:
        """Whether every message has its outcome."""
        return not self._in_flight and not self._pending

    @property
    def in_flight_count(self) -> int:
        """Frames sent and not answered."""
        return len(self._in_flight)

    def is_overdue(self, now: float) -> bool:
        """Whether the oldest frame in flight waits longer than the delivery timeout."""
        if not self._in_flight:
            return False
        return now - self._in_flight[0].first_sent_at >= self.options.delivery_timeout_s

    def is_silent(self, now: float) -> bool:
        """Whether nothing was answered for so long that what is in flight should be sent again over another connection."""
        if not self._in_flight:
            return False
        silent_s = max(SILENT_S_MIN, self.options.delivery_timeout_s / ATTEMPTS)
        silent_s += self._unanswered_bytes / SLOW_BYTES_S
        return now - max(self._in_flight[0].sent_at, self._answered_at) >= silent_s

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
        if batch.records and batch.size + len(record) > FRAME_BYTES_MAX:
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
        """Whether with a message that was added the stream has something else to wait for, or to send.

        That is a batch's first one, and the one with which it is big enough to be sent.
        """
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

    def next_frame(self, now: float) -> ProducerBatch | None:
        """Return the next batch to send, which is sent from now on; None if none is due."""
        lingers = self._lingers
        for queue in self._pending:
            if queue.in_flight >= self._queue_frames_max or now < queue.not_before:
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
            if batch.token is None:
                batch.token, batch.first_sent_at = self._sequences.begin(), now
            queue.in_flight += 1
            self._in_flight.append(batch)
            del self._pending[queue]
            self._keep_pending(queue)  # at the end, so that queues take turns
            return batch
        return None

    def next_due_s(self, now: float) -> float | None:
        """Return the seconds until time alone makes a frame due; None: only an event can."""
        soonest: float | None = None
        for queue in self._pending:
            if queue.in_flight >= self._queue_frames_max:
                continue
            at = queue.not_before
            if not queue.backlog:
                if queue.open is None:
                    continue
                at = max(at, queue.open.due_at) if self._lingers else at
            soonest = at if soonest is None else min(soonest, at)
        return None if soonest is None else max(0.0, soonest - now)

    def answer(self, response: writer_pb2.ProduceStreamResponse, now: float) -> list[ProducerBatch]:
        """Take the answers to the oldest frames in flight; return the batches that are done now."""
        return [batch for outcome in response.outcomes for batch in self._answered(outcome, now)]

    def _answered(self, outcome: writer_pb2.FrameOutcome, now: float) -> list[ProducerBatch]:
        if not self._in_flight:
            raise ServiceFailed("the writer answered a frame that was never sent")
        batch = self._in_flight.popleft()
        batch.queue.in_flight -= 1
        self._answered_at = now
        self._pace.answered(batch.sent_at, now)
        if outcome.WhichOneof("outcome") == "stored":
            stored = stored_batch(outcome.stored)
            if stored.record_count != len(batch.records) - len(batch.dropped):
                return self._fail(
                    batch,
                    UnknownOutcome(
                        f"the writer stored {stored.record_count} records of a batch of"
                        f" {len(batch.records) - len(batch.dropped)}"
                    ),
                    now,
                )
            batch.stored = stored
            return self._finish(batch)
        error = from_failure(outcome.failure)
        if isinstance(error, ResourceExhausted) and error.retry_delay_ms > 0:
            retry_at = now + error.retry_delay_ms / 1000
            if retry_at < batch.born_at + self.options.delivery_timeout_s:
                batch.queue.not_before = retry_at
                return self._send_again(batch)
        if isinstance(error, InvalidArgument) and self._drop(batch, error):
            return self._send_again(batch)
        return self._fail(batch, error, now)

    def _drop(self, batch: ProducerBatch, error: PenstockError) -> bool:
        """Take the one record at fault out of a refused batch; False if it leaves nothing."""
        live = batch.live()
        if len(batch.dropped) >= DROPPED_MAX:
            return False
        if not 0 <= error.record_index < len(live) or len(live) == 1:
            return False
        index = live[error.record_index]
        self._end_token(batch)  # without the record it is another request, which was never sent
        batch.taken_at = None
        batch.dropped[index] = error
        batch.size -= len(batch.records[index])
        self._unanswered_bytes -= len(batch.records[index])
        self._note(error, 1)
        return True

    def _send_again(self, batch: ProducerBatch) -> list[ProducerBatch]:
        batch.queue.backlog.appendleft(batch)
        self._pending[batch.queue] = None
        return []

    def settle(self, error: PenstockError, now: float) -> list[ProducerBatch]:
        """Decide the batches of a stream that ended with ``error``; return those that are done now.

        Those that have waited too long have failed, and so have those that have nothing more to wait for.
        """
        self._take_back()
        limit = now - self.options.delivery_timeout_s
        born_before = float("inf") if _ends_waiting(error) else limit
        return self._fail_unsent(error, now, born_before=born_before)

    def _take_back(self) -> None:
        """Put the unanswered batches before all others of their queues, to be sent again."""
        while self._in_flight:
            batch = self._in_flight.pop()
            batch.queue.in_flight -= 1
            if batch.taken_at is None:
                batch.taken_at = batch.sent_at
            self._send_again(batch)

    def _fail_unsent(
        self, error: PenstockError, now: float, *, born_before: float
    ) -> list[ProducerBatch]:
        done: list[ProducerBatch] = []
        for queue in list(self._pending):
            if queue.open is not None and queue.open.born_at <= born_before:
                self._seal(queue)
            while queue.backlog and queue.backlog[0].waiting_since <= born_before:
                done += self._fail(queue.backlog.popleft(), error, now)
            self._keep_pending(queue)
        return done

    @staticmethod
    def topics_changed(done: Iterable[ProducerBatch]) -> set[str]:
        """Return the topics whose batches have met a missing queue."""
        return {each.queue.topic for each in done if isinstance(each.error, QueueNotFound)}

    def take_failures(self) -> DeliveryFailed | None:
        """Return what failed since the last call, and forget it."""
        if not self._errors:
            return None
        failed = DeliveryFailed(self._errors, self._failed_count)
        self._errors, self._failed_count = [], 0
        return failed

    def _fail(self, batch: ProducerBatch, error: PenstockError, now: float) -> list[ProducerBatch]:
        token, taken_at = batch.token, batch.taken_at
        if taken_at is None and error.code is grpc.StatusCode.ABORTED:
            taken_at = batch.sent_at
        if token is not None and taken_at is not None:
            dated = token.dated(now - taken_at, self._sequences.clock)
            error = produce_error(error, token=str(dated), was_unanswered=True)
            if isinstance(error, UnknownOutcome) and error.token:
                self._sequences.leave(token)
        batch.error = error
        self._note(error, len(batch.records) - len(batch.dropped))
        return self._finish(batch)

    def _note(self, error: PenstockError, message_count: int) -> None:
        self._failed_count += message_count
        if len(self._errors) < ERRORS_KEPT_MAX:
            self._errors.append(error)

    def _finish(self, batch: ProducerBatch) -> list[ProducerBatch]:
        batch.finish()
        self._end_token(batch)
        self._sealed -= 1
        self._unanswered_bytes -= batch.size
        self._keep_pending(batch.queue)
        return [batch]

    def _end_token(self, batch: ProducerBatch) -> None:
        if batch.token is not None:
            self._sequences.end(batch.token)
            batch.token = None

    def _keep_pending(self, queue: QueueBatches) -> None:
        if queue.backlog or queue.open is not None:
            self._pending[queue] = None
        else:
            self._pending.pop(queue, None)
