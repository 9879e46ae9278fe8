"""The batches of a streaming producer: records of one queue that travel as one call."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import accumulate, count
from typing import Final

from penstock.calls import produce
from penstock.calls.call import Attempts, Call
from penstock.errors import PenstockError, ServiceFailed
from penstock.values import Stored, StoredBatch
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.format.record_template import RecordTemplate

ROOMY_MAX: Final = (
    PROPERTIES_SIZE_MAX - 2 * SEQUENCE_PROPERTY_SIZE
)  # bytes of properties to which the writer can add its own


class ProducerBatch:
    """Records of one queue that travel as one call, and what became of them."""

    __slots__ = (
        "attempts",
        "born_at",
        "crowded",
        "done",
        "dropped",
        "due_at",
        "error",
        "queue",
        "records",
        "sent_at",
        "size",
        "starts",
        "stored",
        "template",
        "waiting",
    )

    def __init__(
        self, queue: QueueBatches, *, now: float, due_at: float, template: RecordTemplate
    ) -> None:
        self.queue = queue
        self.template = template
        self.born_at = now
        self.sent_at = now
        self.attempts: Attempts | None = None  # from the first time that it is sent
        self.due_at = due_at
        self.records: list[bytes] = []
        self.size = 0
        self.crowded: set[int] = set()  # records of more than ROOMY_MAX
        self.dropped: dict[int, PenstockError] = {}
        self.done = False
        self.error: PenstockError | None = None
        self.stored: StoredBatch | None = None
        self.starts: list[int] = []
        self.waiting: list[Callable[[], None]] = []  # called when it is done

    def live(self) -> list[int]:
        """Return the places of the records that were not dropped."""
        return [i for i in range(len(self.records)) if i not in self.dropped]

    def call(self) -> Call[StoredBatch]:
        """Return the call that stores its records, but for those that were dropped."""
        parts = [self.records[i] for i in self.live()] if self.dropped else self.records
        return produce.batch_of(parts)

    def end_attempts(self) -> None:
        """Take in that the call has its outcome, or is not made any more."""
        if self.attempts is not None:
            self.attempts.end()
            self.attempts = None

    def failure(self, index: int) -> PenstockError | None:
        """Return why one record of a batch that is done is not stored, None if it is."""
        if index in self.dropped:
            return self.dropped[index]
        if self.stored is not None:
            return None
        return self.error or ServiceFailed("the batch ended without an answer")

    def result(self, index: int) -> Stored:
        """Return where one record of a batch that is done is stored, or raise why it is not."""
        if (error := self.failure(index)) is not None:
            raise error
        assert self.stored is not None
        rank = index - sum(dropped < index for dropped in self.dropped)
        return Stored(
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            queue_offset=_queue_offset(self.stored, rank),
            commit_offset=self._commit_offset(self.stored, index, rank),
            store_timestamp_ms=self.stored.store_timestamp_ms,
            repeated=self.stored.repeated,
        )

    def _commit_offset(self, stored: StoredBatch, index: int, rank: int) -> int:
        """Return a record's commit offset, -1 if the writer's answer does not show it.

        The writer adds the request's sequence to the first record that has room for it.
        """
        first = stored.commit_offset
        if not rank:
            return first
        added = stored.end_commit_offset - first - self.size
        if len(stored.ranges) == 1 and (
            not added or (added == SEQUENCE_PROPERTY_SIZE and self._first() not in self.crowded)
        ):
            return first + added + self.starts[index]
        return -1

    def _first(self) -> int:
        """Return the place of the first record that was not dropped."""
        return next(index for index in count() if index not in self.dropped)

    def finish(self) -> None:
        """Keep where records started instead of their bytes: handles may live long."""
        sizes = (0 if i in self.dropped else len(record) for i, record in enumerate(self.records))
        self.starts = list(accumulate(sizes, initial=0))
        self.records = []
        self.end_attempts()
        self.done = True
        for wake in self.waiting:
            wake()


def _queue_offset(stored: StoredBatch, rank: int) -> int:
    """Return the queue offset of a record; a request that was cut short and completed has two ranges."""
    for queue_range in stored.ranges:
        if rank < queue_range.count:
            return queue_range.first_queue_offset + rank
        rank -= queue_range.count
    raise ServiceFailed("the writer did not say where it stored the record")


class QueueBatches:
    """One queue of one topic: the batch that fills, those that wait, how many are in flight."""

    __slots__ = ("backlog", "in_flight", "not_before", "open", "queue_id", "topic")

    def __init__(self, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.open: ProducerBatch | None = None
        self.backlog: deque[ProducerBatch] = deque()
        self.in_flight = 0
        self.not_before = 0.0
