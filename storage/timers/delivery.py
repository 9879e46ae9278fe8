"""What becomes of parked records that are due: copies in their topics, appended as one batch.

Not delivered are records that name no topic, those of a topic that was deleted, those that were recalled, and
those of which the log has the copy already: it was appended after the progress that was saved last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.engine.copies import copied, prepared_copies
from storage.format.properties import TIMER_DEQUEUE_MS, TIMER_ENQUEUE_MS
from storage.kernels.columns import COMMIT_OFFSET, POSITION, SIZE
from storage.kernels.copies.records import dropped_names, new_targets
from storage.kernels.timers import delivery as kernels
from storage.timers.found import DeliveredBefore
from storage.timers.pending import without
from storage.timers.recalled import Recalled, recall_ids

if TYPE_CHECKING:
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.parked_queue import ParkedQueue, ParkedRecords
    from storage.engine.topic_changes import TopicChanges
    from storage.kernels.columns import ByteArray
    from storage.log.batches import Prepared
    from storage.timers.pending import TimerBlock

Longs = npt.NDArray[np.int64]
ROWS_MAX: Final = 4_096  # looked at at once
LATEST_BATCHES: Final = 8
_IDENTITY: Final = 0  # columns of what is remembered of the latest batches
_DUE_MS: Final = 1
NO_TOPIC: Final = (1 << 63) - 1  # after every record
_ROLLED: Final = b"TIMER_ROLL_TIMES\x01"
_DROPPED: Final = dropped_names([TIMER_ENQUEUE_MS, TIMER_DEQUEUE_MS])


@dataclass(slots=True, kw_only=True)
class DeliveryCounts:
    """What became of due messages since the writer's start; ``repeated`` ones had been delivered before."""

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

    ``seen`` has the copies that the log had already, ``recalled`` the recalls that count.
    """

    def __init__(self, engine: Engine, appender: Appender, topics: TopicChanges) -> None:
        self._engine = engine
        self._appender = appender
        self._topics = topics
        self.counts = DeliveryCounts()
        self.seen = DeliveredBefore(np.empty(0, np.int64))
        self.recalled = Recalled()
        self._latest: deque[Longs] = deque()

    def plan(
        self, records: ParkedRecords, *, now_ms: int, is_timer: bool
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the targets of copies, and what each record says, in the order of its rows."""
        count = len(records.rows)
        targets = new_targets(count)
        said = np.zeros((count, kernels.SAID_COLUMNS), np.int64)
        end = kernels.plan_delivery(
            records.data, records.rows, count, now_ms, is_timer, records.records_end, targets, said
        )
        assert end >= 0
        return targets, said

    def deliver(
        self, records: ParkedRecords, order: Longs, *, now_ms: int, is_timer: bool
    ) -> tuple[Longs, Longs]:
        """Deliver the records that are due; return the places in ``order`` of others, and when they are due.

        ``order`` has rows of ``records`` in the order in which they are due. Raises StoreBusy, StoreFull,
        StoreFailed, and then nothing was done.
        """
        records = records._replace(
            rows=np.ascontiguousarray(records.rows[order]),
            queue_offsets=records.queue_offsets[order],
        )
        targets, said = self.plan(records, now_ms=now_ms, is_timer=is_timer)
        recalls = said[:, kernels.RECALLS] != 0
        early = (said[:, kernels.DUE_MS] > now_ms) & ~recalls
        keys, dues_ms = said[recalls][:, (kernels.RECALLS, kernels.DUE_MS)].T
        self.recalled.add(recall_ids(keys, dues_ms), records.queue_offsets[recalls], dues_ms)
        lost = said[:, kernels.IS_LOST] != 0
        recalled = self._recalled(records, said) & is_timer
        chosen = ~(early | recalls | lost | recalled)
        met = np.zeros(len(said), np.bool_)
        met[chosen] = self.seen.has(said[chosen, kernels.IDENTITY])
        chosen &= ~met
        again = self._rolled_again(records, said, chosen)
        chosen &= ~again
        gone = np.zeros(len(said), np.bool_)
        with self._topics.lock:  # no topic goes between the look at it and the append
            prepared = self._prepare(records, targets, chosen, gone)
            if prepared is not None:
                self._appender.append(prepared, decided=True)
        self.seen.take(said[met, kernels.IDENTITY])
        self._note_delivered(said[chosen])
        counts = self.counts
        counts.delivered += int((chosen & ~gone).sum())
        counts.topic_deleted += int(gone.sum())
        counts.recalled += int((recalled & ~early).sum())
        counts.repeated += int((met | again).sum())
        counts.damaged += int((lost & ~early).sum())
        return np.flatnonzero(early), said[early, kernels.DUE_MS]

    def _note_delivered(self, said: Longs) -> None:
        """Remember the latest batches, and all of those that were due when the first of this one is."""
        if len(said):
            latest = self._latest
            latest.append(said[:, (kernels.IDENTITY, kernels.DUE_MS)])
            first_ms = int(said[:, kernels.DUE_MS].min())
            while len(latest) > LATEST_BATCHES and latest[0][:, _DUE_MS].max() < first_ms:
                latest.popleft()

    def _recalled(self, records: ParkedRecords, said: Longs) -> npt.NDArray[np.bool_]:
        """Return which records of the timer topic a recall that was met takes back."""
        ids = recall_ids(said[:, kernels.RECALL_KEY], said[:, kernels.DUE_MS])
        taken_back = self.recalled.takes_back(ids, records.queue_offsets)
        taken_back &= said[:, kernels.RECALLS] == 0
        return taken_back

    def without_recalled(
        self, blocks: Sequence[TimerBlock], queue: ParkedQueue, *, now_ms: int, bytes_max: int
    ) -> Sequence[TimerBlock]:
        """Return pending rows of the timer topic, but those of messages whose recall was met."""
        if not self.recalled:
            return blocks
        until_ms = self.recalled.until_ms
        left = np.sort(
            np.concatenate(
                [np.empty(0, np.int64)]
                + [block.queue_offsets(block.head, block.due_end(until_ms)) for block in blocks]
            )
        )
        found = [left[:0]]
        while len(left):
            records = queue.records(
                left[:ROWS_MAX], bytes_max=bytes_max, room=kernels.DELIVERY_PAIRS_MAX
            )
            _, said = self.plan(records, now_ms=now_ms, is_timer=True)
            found.append(records.queue_offsets[self._recalled(records, said)])
            left = left[max(records.looked_at, 1) :]
        return without(blocks, np.concatenate(found))

    def _rolled_again(
        self, records: ParkedRecords, said: Longs, chosen: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Return which of the chosen records a broker wrote for a roll while the one before is delivered, too.

        Both are due at the same time, so the one before is in this batch or among the latest.
        """
        again = np.zeros(len(said), np.bool_)
        if _ROLLED not in records.data[: records.records_end].tobytes():
            return again
        identities = said[:, kernels.IDENTITY]
        delivered = {each for batch in self._latest for each in batch[:, _IDENTITY].tolist()}
        for place in np.flatnonzero(chosen).tolist():
            begin = int(records.rows[place, POSITION])
            record = records.data[begin : begin + int(records.rows[place, SIZE])].tobytes()
            identity = int(identities[place])
            again[place] = _ROLLED in record and identity in delivered
            delivered.add(identity)
        return again

    def _prepare(
        self, records: ParkedRecords, targets: Longs, chosen: npt.NDArray[np.bool_],
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
            prepared = prepared_copies(
                copies, len(places),
                store_host_size=len(self._engine.store_host),
                append_crc=self._engine.config.append_property_crc,
            )  # fmt: skip
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
