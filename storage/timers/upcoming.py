"""How many delayed messages are to come to some queues of a topic, by their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.engine.parked_queue import ParkedQueue
from storage.format.names import TIMER_TOPIC
from storage.kernels.copies.records import TARGET_QUEUE, TOPIC_AT, TOPIC_SIZE, new_targets
from storage.kernels.timers import delivery as kernels
from storage.timers.recalled import NONE, Recalled, recall_ids
from storage.view.log.commit_log import CommitLogView

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.engine.parked_queue import ParkedRecords
    from storage.engine.topic_shrink import Count

Longs = npt.NDArray[np.int64]
ROWS_MAX: Final = 4_096  # looked at at once
BYTES_MAX: Final = 4 << 20
_NONE: Final = np.empty(0, np.int64)


@contextmanager
def upcoming_in(
    engine: Engine,
    waiting: Callable[[], tuple[Longs, dict[tuple[str, int], int]]],
    topic: str,
    queue_ids: range,
) -> Iterator[Count]:
    """Count messages that are to come to queues of a topic, as of the entry and of what was parked since.

    ``waiting`` returns the offsets of the timer topic that were taken up, in any order, and where what follows in each
    queue begins.
    """
    log = CommitLogView(engine.filesystem, engine.paths.commit_log, mapped_files_max=8)
    queues: dict[tuple[str, int], ParkedQueue] = {}
    found = UpcomingMessages(topic, queue_ids)
    taken_up, begins = waiting()

    def look(timers: Longs) -> dict[int, int]:
        log.set_bounds(engine.log.min_offset, engine.dispatch.position)
        for key, begin in begins.items():
            if key not in queues:
                if engine.queues.known(*key) is None:
                    continue
                queues[key] = ParkedQueue(engine.filesystem, engine.paths.consume_queue, log, *key)
            end = max(queues[key].bounds()[1], begin)
            offsets = np.arange(begin, end)
            if key == (TIMER_TOPIC, 0):
                offsets = np.concatenate((timers, offsets))
            found.look_at(queues[key], offsets)
            begins[key] = end
        return found.counts()

    try:
        look(np.sort(taken_up))
        look(_NONE)  # what came during the first look, so that little is left
        yield lambda: look(_NONE)
    finally:
        for queue in queues.values():
            queue.close()
        log.close()


class UpcomingMessages:
    """Counts messages for some queues of a topic; used by one thread.

    A message that a later record recalls does not count if both were looked at.
    """

    def __init__(self, topic: str, queue_ids: range) -> None:
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._queue_ids = queue_ids
        self._queues: list[Longs] = [_NONE]  # of each message
        self._ids: list[Longs] = [_NONE]  # that a recall of it would have
        self._offsets: list[Longs] = [_NONE]
        self._recalled = Recalled()

    def look_at(self, queue: ParkedQueue, queue_offsets: Longs) -> None:
        """Take in the records at ascending offsets of a system topic's queue. Raises OSError."""
        left = queue_offsets
        while len(left):
            records = queue.records(
                left[:ROWS_MAX], bytes_max=BYTES_MAX, room=kernels.DELIVERY_PAIRS_MAX
            )
            self._take(records, is_timer=queue.topic == TIMER_TOPIC)
            left = left[max(records.looked_at, 1) :]

    def counts(self) -> dict[int, int]:
        """Return how many messages are to come, by queue id."""
        queues, ids = np.concatenate(self._queues), np.concatenate(self._ids)
        offsets = np.concatenate(self._offsets)
        stays = ~self._recalled.takes_back(ids, offsets)
        queues, ids, offsets = queues[stays], ids[stays], offsets[stays]
        self._queues, self._ids, self._offsets = [queues], [ids], [offsets]
        counts = np.bincount(queues - self._queue_ids.start, minlength=1)
        found = np.flatnonzero(counts)
        return dict(
            zip((found + self._queue_ids.start).tolist(), counts[found].tolist(), strict=True)
        )

    def _take(self, records: ParkedRecords, *, is_timer: bool) -> None:
        count = len(records.rows)
        targets = new_targets(count)
        said = np.zeros((count, kernels.SAID_COLUMNS), np.int64)
        end = kernels.plan_delivery(
            records.data, records.rows, count, 0, is_timer, records.records_end, targets, said
        )
        assert end >= 0
        recalls = said[:, kernels.RECALLS] != 0
        dues_ms = said[:, kernels.DUE_MS]
        self._recalled.add(
            recall_ids(said[recalls, kernels.RECALLS], dues_ms[recalls]),
            records.queue_offsets[recalls],
            dues_ms[recalls],
        )
        queues = targets[:, TARGET_QUEUE]
        chosen = (queues >= self._queue_ids.start) & (queues < self._queue_ids.stop) & ~recalls
        chosen &= (said[:, kernels.IS_LOST] == 0) & (targets[:, TOPIC_SIZE] == len(self._topic))
        places = np.flatnonzero(chosen)
        text = targets[places, TOPIC_AT][:, None] + np.arange(len(self._topic))
        places = places[(records.data[text] == self._topic).all(axis=1)]
        self._queues.append(queues[places])
        ids = recall_ids(said[places, kernels.RECALL_KEY], dues_ms[places])
        self._ids.append(ids if is_timer else np.full(len(ids), NONE))
        self._offsets.append(records.queue_offsets[places])
