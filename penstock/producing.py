"""What a streaming producer holds and decides; no I/O, no locks, no clock of its own.

Messages gather in lanes, one lane a queue. A lane's open batch becomes a frame of the stream when it
is big enough, has waited long enough, or is flushed.

1. Frames are answered in the order in which they were sent: ``_in_flight`` is first in, first out.
2. With ``ordered``, a lane has at most one frame in flight. A refused frame that is sent again can
   therefore not be overtaken by a later one of its queue. While a lane waits for its answer its open
   batch keeps growing, up to ``frame_bytes_max``, so that waiting costs no throughput.
3. A frame counts as sent from the moment `next_frame` returns it. When the stream breaks, sent frames
   without an answer fail with UnknownOutcome and are never sent again; the others are still whole.
4. At most ``max_in_flight`` frames are sealed and not yet answered; `has_room` says when to stop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from penstock.batch import NO_PROPERTIES, Keys, properties_block, record_template
from penstock.calls.produce import stored_batch
from penstock.errors import (
    ClientClosed,
    DeliveryFailed,
    FailedPrecondition,
    InvalidArgument,
    PenstockError,
    ResourceExhausted,
    ServiceFailed,
    Unimplemented,
    UnknownOutcome,
    from_failure,
)
from penstock.requests import FRAME_OVERHEAD_MAX, REQUEST_BYTES_MAX, check_size
from penstock.v1 import writer_pb2
from penstock.values import Stored, StoredBatch
from penstock.wire import frame_batch_parts
from storage.format.record_template import RecordTemplate

FRAME_BYTES_MAX: Final = 1 << 20
ERRORS_KEPT_MAX: Final = 100
RECORD_OVERHEAD_MAX: Final = 512  # bytes of a record that are neither body nor properties
DROPPED_MAX: Final = 16  # records at fault in one batch before the rest of it is given up too


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches and what it bounds."""

    max_in_flight: int = 64
    linger_ms: float = 5
    batch_bytes: int = 64 << 10
    ordered: bool = True
    delivery_timeout_s: float = 30.0
    record_bytes_max: int = REQUEST_BYTES_MAX - FRAME_OVERHEAD_MAX

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {self.max_in_flight}")
        if not 1 <= self.batch_bytes <= FRAME_BYTES_MAX:
            raise ValueError(
                f"batch_bytes must be 1 to {FRAME_BYTES_MAX} bytes, not {self.batch_bytes}"
            )
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms must not be negative, not {self.linger_ms}")


class Batch:
    """Records of one queue that travel as one frame, and what became of them."""

    __slots__ = (
        "born_at",
        "done",
        "dropped",
        "due_at",
        "error",
        "lane",
        "records",
        "sent_at",
        "size",
        "starts",
        "stored",
        "template",
        "waiters",
    )

    def __init__(self, lane: Lane, *, now: float, due_at: float, template: RecordTemplate) -> None:
        self.lane = lane
        self.template = template
        self.born_at = now
        self.sent_at = now
        self.due_at = due_at
        self.records: list[bytes] = []
        self.size = 0
        self.dropped: dict[int, PenstockError] = {}
        self.done = False
        self.error: PenstockError | None = None
        self.stored: StoredBatch | None = None
        self.starts: list[int] = []
        self.waiters: list[Any] = []

    def live(self) -> list[int]:
        """Return the places of the records that were not dropped."""
        return [i for i in range(len(self.records)) if i not in self.dropped]

    def frame(self) -> bytes:
        """Return the serialized request."""
        parts = [self.records[i] for i in self.live()] if self.dropped else self.records
        return frame_batch_parts(parts, self.size)

    def failure(self, index: int) -> PenstockError | None:
        """Return why one record of a batch that is done is not stored, None if it is."""
        if index in self.dropped:
            return self.dropped[index]
        if self.stored is not None:
            return None
        return self.error or ServiceFailed("the batch ended without an answer")

    def outcome(self, index: int) -> Stored | PenstockError:
        """Return what became of one record of a batch that is done."""
        if (error := self.failure(index)) is not None:
            return error
        assert self.stored is not None
        first = self.stored.commit_offset
        contiguous = self.stored.end_commit_offset - first == self.size
        rank = index - sum(dropped < index for dropped in self.dropped)
        return Stored(
            topic=self.lane.topic,
            queue_id=self.lane.queue_id,
            queue_offset=self.stored.ranges[0].first_queue_offset + rank,
            commit_offset=first + self.starts[index] if contiguous else -1,
            store_timestamp_ms=self.stored.store_timestamp_ms,
        )

    def finish(self) -> None:
        """Keep where records started instead of their bytes: handles may live long."""
        sizes = (0 if i in self.dropped else len(record) for i, record in enumerate(self.records))
        self.starts = list(accumulate(sizes, initial=0))
        self.records = []
        self.done = True


class Lane:
    """One queue of one topic: the batch that fills, those that wait, how many are in flight."""

    __slots__ = ("backlog", "in_flight", "not_before", "open", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.open: Batch | None = None
        self.backlog: deque[Batch] = deque()
        self.in_flight = 0
        self.not_before = 0.0


def ends_waiting(error: PenstockError) -> bool:
    """Whether what was not sent yet has nothing to wait for after a stream ended so."""
    return isinstance(error, ClientClosed | FailedPrecondition | Unimplemented)


class ProducerState:
    """The batches of one producer from their first message to their outcome."""

    def __init__(self, options: ProducerOptions) -> None:
        self.options = options
        self._lane_limit = 1 if options.ordered else options.max_in_flight
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._pending: dict[Lane, None] = {}  # lanes with anything not in flight, in order
        self._in_flight: deque[Batch] = deque()
        self._sealed = 0
        self._next_queue: dict[str, int] = {}
        self._errors: list[PenstockError] = []
        self._failed_count = 0

    @property
    def has_room(self) -> bool:
        """Whether another message may be added now."""
        return self._sealed < self.options.max_in_flight

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
        return now - self._in_flight[0].sent_at >= self.options.delivery_timeout_s

    def choose_queue(self, topic: str, queue_count: int) -> int:
        """Return the queue for a message that names none: one after the other, batch by batch."""
        queue_id = self._next_queue.get(topic, 0) % queue_count
        lane = self._lanes.get((topic, queue_id))
        if lane is not None and (lane.open is None or lane.open.size >= self.options.batch_bytes):
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
    ) -> tuple[Batch, int]:
        """Take a message in; return its batch and its place there. Nothing is sent yet."""
        block = properties_block(keys, tag, properties, unique_key)
        check_size(
            "body", len(body) + len(block) + RECORD_OVERHEAD_MAX, self.options.record_bytes_max
        )
        lane = self._lanes.get((topic, queue_id))
        if lane is None:
            lane = Lane(topic, queue_id)
        batch = lane.open
        if batch is None:
            batch = self._open(lane, now, now_ms)
            self._lanes[topic, queue_id] = lane
        record = batch.template.encode(body, block)
        if batch.records and batch.size + len(record) > FRAME_BYTES_MAX:
            self._seal(lane)
            batch = self._open(lane, now, now_ms)
        batch.records.append(record)
        batch.size += len(record)
        if not self.options.ordered and batch.size >= self.options.batch_bytes:
            self._seal(lane)
        return batch, len(batch.records) - 1

    def _open(self, lane: Lane, now: float, now_ms: int) -> Batch:
        template = record_template(lane.topic, lane.queue_id, born_timestamp_ms=now_ms)
        due_at = now + self.options.linger_ms / 1000
        lane.open = Batch(lane, now=now, due_at=due_at, template=template)
        self._pending[lane] = None
        return lane.open

    def _seal(self, lane: Lane) -> None:
        assert lane.open is not None
        lane.backlog.append(lane.open)
        lane.open = None
        self._sealed += 1

    def flush(self) -> list[Batch]:
        """Let every message that is here now go without waiting for more; return their batches."""
        batches = list(self._in_flight)
        for lane in self._pending:
            batches.extend(lane.backlog)
            if lane.open is not None:
                lane.open.due_at = 0.0
                batches.append(lane.open)
        return batches

    def next_frame(self, now: float) -> Batch | None:
        """Return the next batch to send, which from now on counts as sent; None if none is due."""
        for lane in self._pending:
            if lane.in_flight >= self._lane_limit or now < lane.not_before:
                continue
            if not lane.backlog:
                batch = lane.open
                if batch is None or not batch.records:
                    continue
                if batch.size < self.options.batch_bytes and now < batch.due_at:
                    continue
                if self._sealed >= self.options.max_in_flight:
                    continue
                self._seal(lane)
            batch = lane.backlog.popleft()
            batch.sent_at = now
            lane.in_flight += 1
            self._in_flight.append(batch)
            del self._pending[lane]
            self._keep_pending(lane)  # at the end, so that lanes take turns
            return batch
        return None

    def next_due_s(self, now: float) -> float | None:
        """Return the seconds until time alone makes a frame due; None: only an event can."""
        soonest: float | None = None
        for lane in self._pending:
            if lane.in_flight >= self._lane_limit:
                continue
            at = lane.not_before
            if not lane.backlog:
                if lane.open is None:
                    continue
                at = max(at, lane.open.due_at)
            soonest = at if soonest is None else min(soonest, at)
        return None if soonest is None else max(0.0, soonest - now)

    def answer(self, response: writer_pb2.ProduceStreamResponse, now: float) -> list[Batch]:
        """Take the answer to the oldest frame in flight; return the batches that are done now."""
        if not self._in_flight:
            raise ServiceFailed("the writer answered a frame that was never sent")
        batch = self._in_flight.popleft()
        batch.lane.in_flight -= 1
        if response.WhichOneof("outcome") == "stored":
            stored = stored_batch(response.stored)
            if stored.record_count != len(batch.records) - len(batch.dropped):
                return self._fail(
                    batch,
                    UnknownOutcome(
                        f"the writer stored {stored.record_count} records of a batch of"
                        f" {len(batch.records) - len(batch.dropped)}"
                    ),
                )
            batch.stored = stored
            return self._finish(batch)
        error = from_failure(response.failure)
        if isinstance(error, ResourceExhausted) and error.retry_delay_ms > 0:
            retry_at = now + error.retry_delay_ms / 1000
            if retry_at < batch.born_at + self.options.delivery_timeout_s:
                batch.lane.not_before = retry_at
                return self._send_again(batch)
        if isinstance(error, InvalidArgument) and self._drop(batch, error):
            return self._send_again(batch)
        return self._fail(batch, error)

    def _drop(self, batch: Batch, error: PenstockError) -> bool:
        """Take the one record at fault out of a refused batch; False if it leaves nothing."""
        live = batch.live()
        if len(batch.dropped) >= DROPPED_MAX:
            return False
        if not 0 <= error.record_index < len(live) or len(live) == 1:
            return False
        index = live[error.record_index]
        batch.dropped[index] = error
        batch.size -= len(batch.records[index])
        self._note(error, 1)
        return True

    def _send_again(self, batch: Batch) -> list[Batch]:
        batch.lane.backlog.appendleft(batch)
        self._pending[batch.lane] = None
        return []

    def broken(self, error: PenstockError) -> list[Batch]:
        """Fail every frame that was sent and not answered; return the batches that are done now."""
        done: list[Batch] = []
        while self._in_flight:
            batch = self._in_flight.popleft()
            batch.lane.in_flight -= 1
            unknown = UnknownOutcome(
                f"the stream broke before the writer answered: {error.message}", code=error.code
            )
            unknown.__cause__ = error
            done += self._fail(batch, unknown)
        return done

    def fail_unsent(self, error: PenstockError, *, born_before: float) -> list[Batch]:
        """Fail batches never sent that are older than that; return the batches that are done now."""
        done: list[Batch] = []
        for lane in list(self._pending):
            if lane.open is not None and lane.open.born_at <= born_before:
                self._seal(lane)
            while lane.backlog and lane.backlog[0].born_at <= born_before:
                done += self._fail(lane.backlog.popleft(), error)
            self._keep_pending(lane)
        return done

    def take_failures(self) -> DeliveryFailed | None:
        """Return what failed since the last call, and forget it."""
        if not self._errors:
            return None
        failed = DeliveryFailed(self._errors, self._failed_count)
        self._errors, self._failed_count = [], 0
        return failed

    def _fail(self, batch: Batch, error: PenstockError) -> list[Batch]:
        batch.error = error
        self._note(error, len(batch.records) - len(batch.dropped))
        return self._finish(batch)

    def _note(self, error: PenstockError, message_count: int) -> None:
        self._failed_count += message_count
        if len(self._errors) < ERRORS_KEPT_MAX:
            self._errors.append(error)

    def _finish(self, batch: Batch) -> list[Batch]:
        batch.finish()
        self._sealed -= 1
        self._keep_pending(batch.lane)
        return [batch]

    def _keep_pending(self, lane: Lane) -> None:
        if lane.backlog or lane.open is not None:
            self._pending[lane] = None
        else:
            self._pending.pop(lane, None)
