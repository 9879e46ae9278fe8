"""What becomes of parked records that are due: copies in their topics, appended as one batch.

Not delivered are records that name no topic, those of a topic that was deleted, those that were recalled, and
those of which the log has the copy already: it was appended after the progress that was saved last.

A broker rolls on what is due in more than two days: it writes the record again, and both are pending with
us. Each record that was written again stands for one before it. It is dropped once all is taken up, which is
before either is due and before progress is saved, so nothing of it is to be remembered. Where the record
before is not pending, as its log file has gone, the later one stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.engine.copies import copied, prepared_copies
from storage.format.names import TIMER_TOPIC
from storage.format.properties import TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS
from storage.format.timer_files import SECOND_MS, out_ms
from storage.kernels import timers as kernels
from storage.kernels.columns import COMMIT_OFFSET, FEATURES, HAS_DELAY, HAS_TIMER
from storage.kernels.copies import dropped_names, new_targets
from storage.kernels.timers import DUE_MS, IDENTITY, ROLL_COUNT
from storage.timers.blocks import without
from storage.timers.recalls import Recalled, ids_in_second, recallable
from storage.view.log.walk import RecordRun, walk_log

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.engine.writer_view import QueueRecords, WriterQueueView
    from storage.kernels.columns import ByteArray
    from storage.log.batches import Prepared
    from storage.timers.blocks import PendingTimers, TimerBlock

Longs = npt.NDArray[np.int64]
NO_TOPIC: Final = (1 << 63) - 1  # after every record
BYTES_MAX: Final = 4 << 20
_NONE: Final = np.empty(0, np.int64)
_DROPPED: Final = dropped_names([TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS])


class Read(NamedTuple):
    """Some records, and for each the target of its copy and what it says (``storage.kernels.timers``)."""

    records: QueueRecords
    targets: Longs
    said: Longs


def planned(records: QueueRecords, *, now_ms: int, is_timer: bool) -> Read:
    """Return records with what they say, in the order of their rows."""
    count = len(records.rows)
    targets = new_targets(count)
    said = np.zeros((count, kernels.SAID_COLUMNS), np.int64)
    end = kernels.plan_delivery(
        records.data, records.rows, count, now_ms, is_timer, records.records_end, targets, said
    )
    assert end >= 0
    return Read(records, targets, said)


def read_through(queue: WriterQueueView, queue_offsets: Longs) -> Iterator[Read]:
    """Yield the records at ascending queue offsets, some at a time; none of them is delivered. Raises OSError."""
    for records in queue.read(queue_offsets, bytes_max=BYTES_MAX, room=kernels.DELIVERY_PAIRS_MAX):
        yield planned(records, now_ms=0, is_timer=queue.topic == TIMER_TOPIC)


@dataclass(slots=True, kw_only=True)
class DeliveryCounts:
    """What became of due messages since the writer's start.

    ``repeated`` ones had been delivered before, or a broker had rolled them on.
    """

    delivered: int = 0
    recalled: int = 0
    repeated: int = 0
    topic_deleted: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class TimerStatus:
    """What waits. ``due_counts`` are of those with a time of delivery, within each of the times asked for.

    ``late_ms`` is how long the next one has been due.
    """

    pending_count: int
    next_due_ms: int | None
    late_ms: int
    due_counts: list[int]
    counts: DeliveryCounts


class Delivery:
    """Delivers records of one store. Used by one thread.

    ``seen`` counts by identity the copies that the log had at the start: each stands for one record that is
    not delivered again. ``recalled`` has the recalls that count.
    """

    def __init__(self, engine: Engine, appender: Appender, topics: TopicChanges) -> None:
        self._engine = engine
        self._appender = appender
        self._topics = topics
        self.counts = DeliveryCounts()
        self.seen: Counter[int] = Counter()
        self.recalled = Recalled()

    def deliver(
        self, records: QueueRecords, order: Longs, *, now_ms: int, is_timer: bool
    ) -> tuple[Longs, Longs]:
        """Deliver the records that are due; return the places in ``order`` of others, and when they are due.

        ``order`` has rows of ``records`` in the order in which they are due. Raises StoreBusy, StoreFull,
        StoreFailed, and then nothing was done.
        """
        records = records._replace(
            rows=np.ascontiguousarray(records.rows[order]),
            queue_offsets=records.queue_offsets[order],
        )
        _, targets, said = planned(records, now_ms=now_ms, is_timer=is_timer)
        recalls = said[:, kernels.RECALLS] != 0
        early = (said[:, DUE_MS] > now_ms) & ~recalls
        self.recalled.note(said, records.queue_offsets)
        lost = said[:, kernels.IS_LOST] != 0
        recalled = is_timer & self.recalled.takes_back(*recallable(said, records.queue_offsets))
        chosen = ~(early | recalls | lost | recalled)
        met = np.zeros(len(said), np.bool_)
        taken: Counter[int] = Counter()
        for place in np.flatnonzero(chosen).tolist() if self.seen else ():
            identity = int(said[place, IDENTITY])
            taken[identity] += 1
            met[place] = taken[identity] <= self.seen.get(identity, 0)
        chosen &= ~met
        gone = np.zeros(len(said), np.bool_)
        with self._topics.lock:  # no topic goes between the look at it and the append
            prepared = self._prepare(records, targets, chosen, gone)
            if prepared is not None:
                self._appender.append(prepared, decided=True)
        for identity in said[met, IDENTITY].tolist():
            self.seen[identity] -= 1
            if not self.seen[identity]:
                del self.seen[identity]
        counts = self.counts
        counts.delivered += int((chosen & ~gone).sum())
        counts.topic_deleted += int(gone.sum())
        counts.recalled += int((recalled & ~early).sum())
        counts.repeated += int(met.sum())
        counts.damaged += int((lost & ~early).sum())
        return np.flatnonzero(early), said[early, DUE_MS]

    def _prepare(
        self, records: QueueRecords, targets: Longs, chosen: npt.NDArray[np.bool_],
        gone: npt.NDArray[np.bool_],
    ) -> Prepared | None:  # fmt: skip
        """Return copies of the chosen records as a batch; None without any. Sets which topics are ``gone``."""
        while True:
            places = np.flatnonzero(chosen & ~gone)
            if not len(places):
                return None
            text: ByteArray = records.data
            copies = copied(
                text, np.ascontiguousarray(records.rows[places]), text,
                np.ascontiguousarray(targets[places]), _DROPPED,
            )  # fmt: skip
            prepared = prepared_copies(self._engine, copies, len(places))
            deleted_at = np.array(
                [self._deleted_at(topic.decode()) for topic, _ in prepared.queues], np.int64
            )
            earlier = records.rows[places, COMMIT_OFFSET] < deleted_at[prepared.group_of]
            if not earlier.any():
                return prepared
            gone[places[earlier]] = True

    def _deleted_at(self, topic: str) -> int:
        """Return the commit offset before which no record belongs to a topic."""
        return self._topics.deleted_at(topic) if topic in self._engine.topics else NO_TOPIC


def delivered_since(commit_offset: int, engine: Engine) -> Counter[int]:
    """Return how many delivered copies of each identity the log has from ``commit_offset`` on."""
    delivered: Counter[int] = Counter()
    for records in walk_log(engine.log.files, commit_offset, engine.recovered.end_offset):
        if isinstance(records, RecordRun):
            rows = records.rows
            if np.bitwise_or.reduce(rows[:, FEATURES]) & (HAS_DELAY | HAS_TIMER):
                identities = np.empty(len(rows), np.int64)
                count = int(kernels.delivered_identities(records.data, rows, len(rows), identities))
                assert count >= 0
                delivered.update(identities[:count].tolist())
    return delivered


class RolledRecords:
    """The seconds of rolled records that were taken up and not yet compared with what is pending."""

    def __init__(
        self, pending: PendingTimers, queue: WriterQueueView, counts: DeliveryCounts
    ) -> None:
        self._pending = pending
        self._queue = queue
        self._counts = counts
        self._outs_ms = _NONE

    def take_up(self, said: Longs) -> None:
        """Note those among some records of the timer topic."""
        rolled = said[said[:, ROLL_COUNT] > 0]
        if len(rolled):
            self._outs_ms = np.union1d(self._outs_ms, out_ms(rolled[:, DUE_MS]))

    def drop_repeated(self) -> None:
        """Leave one row of each message pending; all of the timer topic is taken up, or progress is to be saved. Raises OSError."""
        if not len(self._outs_ms):
            return
        near = [_NONE, *(self._near(block) for block in self._pending.blocks)]
        found: list[tuple[Longs, ...]] = [(_NONE, _NONE, _NONE)]
        for records, _, said in read_through(self._queue, np.sort(np.concatenate(near))):
            ids = ids_in_second(said[:, IDENTITY], said[:, DUE_MS])
            found.append((ids, said[:, ROLL_COUNT], records.queue_offsets))
        ids, roll_counts, queue_offsets = map(np.concatenate, zip(*found, strict=True))
        _, messages = np.unique(ids, return_inverse=True)
        firsts = np.full(len(ids), np.iinfo(np.int64).max)
        np.minimum.at(firsts, messages, roll_counts)
        repeated = queue_offsets[roll_counts > firsts[messages]]
        if len(repeated):
            self._pending.blocks = without(self._pending.blocks, repeated)
        self._counts.repeated += len(repeated)
        self._outs_ms = _NONE

    def _near(self, block: TimerBlock) -> Longs:
        """Return the queue offsets of a block's rows in one of the seconds; a recall's row is a second early."""
        begin, end = block.head, len(block.rows)
        outs_ms = out_ms(block.dues_ms(begin, end))
        is_near = np.isin(outs_ms, self._outs_ms) | np.isin(outs_ms + SECOND_MS, self._outs_ms)
        return block.queue_offsets(begin, end)[is_near]
