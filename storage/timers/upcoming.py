"""How many delayed messages are to come to some queues of a topic, by their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.engine.parked_queue import ParkedLog, ParkedQueue
from storage.format.names import TIMER_TOPIC
from storage.kernels.columns import COMMIT_OFFSET
from storage.kernels.copies import TARGET_QUEUE, TOPIC_AT, TOPIC_SIZE
from storage.kernels.timers import delivery as kernels
from storage.timers.reading import read_through
from storage.timers.recalls import NONE, Recalled, recallable

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.engine.topic_shrink import Count
    from storage.timers.reading import Read

Longs = npt.NDArray[np.int64]
_NONE: Final = np.empty(0, np.int64)


@contextmanager
def upcoming_in(
    engine: Engine,
    waiting: Callable[[], tuple[Longs, dict[tuple[str, int], int]]],
    topic: str,
    queue_ids: range,
    min_commit_offset: int,
) -> Iterator[Count]:
    """Count messages that are to come to queues of a topic, as of the entry and of what was parked since.

    ``waiting`` returns the offsets of the timer topic that were taken up, in any order, and where what follows in each
    queue begins.
    """
    log = ParkedLog(engine)
    queues: dict[tuple[str, int], ParkedQueue] = {}
    found = UpcomingMessages(topic, queue_ids, min_commit_offset)
    taken_up, begins = waiting()

    def look(timers: Longs) -> dict[int, int]:
        log.look()
        for key, begin in begins.items():
            if key not in queues:
                if engine.queues.known(*key) is None:
                    continue
                queues[key] = ParkedQueue(log, *key)
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
    """Counts messages for some queues of a topic, from a commit offset on; used by one thread.

    A message that a later record recalls does not count if both were looked at.
    """

    def __init__(self, topic: str, queue_ids: range, min_commit_offset: int) -> None:
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._queue_ids = queue_ids
        self._min_commit_offset = min_commit_offset
        self._queues: list[Longs] = [_NONE]  # of each message
        self._ids: list[Longs] = [_NONE]  # that a recall of it would have
        self._stored_at: list[Longs] = [_NONE]
        self._recalled = Recalled()

    def look_at(self, queue: ParkedQueue, queue_offsets: Longs) -> None:
        """Take in the records at ascending offsets of a system topic's queue. Raises OSError."""
        for read in read_through(queue, queue_offsets):
            self._take(read, is_timer=queue.topic == TIMER_TOPIC)

    def counts(self) -> dict[int, int]:
        """Return how many messages are to come, by queue id."""
        queues, ids = np.concatenate(self._queues), np.concatenate(self._ids)
        stored_at = np.concatenate(self._stored_at)
        stays = ~self._recalled.takes_back(ids, stored_at)
        queues, ids, stored_at = queues[stays], ids[stays], stored_at[stays]
        self._queues, self._ids, self._stored_at = [queues], [ids], [stored_at]
        counts = np.bincount(queues - self._queue_ids.start, minlength=1)
        found = np.flatnonzero(counts)
        return dict(
            zip((found + self._queue_ids.start).tolist(), counts[found].tolist(), strict=True)
        )

    def _take(self, read: Read, *, is_timer: bool) -> None:
        records, targets, said = read
        self._recalled.add(said, records.queue_offsets)
        queues = targets[:, TARGET_QUEUE]
        chosen = (queues >= self._queue_ids.start) & (queues < self._queue_ids.stop)
        chosen &= (said[:, kernels.RECALLS] == 0) & (said[:, kernels.IS_LOST] == 0)
        chosen &= targets[:, TOPIC_SIZE] == len(self._topic)
        chosen &= records.rows[:, COMMIT_OFFSET] >= self._min_commit_offset
        places = np.flatnonzero(chosen)
        text = targets[places, TOPIC_AT][:, None] + np.arange(len(self._topic))
        places = places[(records.data[text] == self._topic).all(axis=1)]
        self._queues.append(queues[places])
        ids, stored_at = recallable(said[places], records.queue_offsets[places])
        self._ids.append(ids if is_timer else np.full(len(ids), NONE))
        self._stored_at.append(stored_at)
