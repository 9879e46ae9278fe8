"""Offsets by store time: the one answer to "the first at or after a time".

``search`` halves any range of offsets whose times can be asked for: reader, plans and streams share
it. What is lost or damaged has no time; the answer is the offset after the newest readable record that
is older, so a read which starts there leaves out nothing that is intact, and meets the damage. Store
times are taken to grow with the offset.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from storage.format.store_time import NO_TIME
from storage.view.log.commit_log import CommitLogView, LogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.unit_search import UnitSource

TimeFrom = Callable[[int, int], tuple[int, int]]
"""Store time of the first readable record in ``[offset, end)``, and its offset; NO_TIME and the end."""


class Boundary(Enum):
    """Which record of those around a time is meant."""

    LOWER = "the first stored at or after the time"
    UPPER = "the last stored at or before the time"


def search(
    begin: int,
    end: int,
    timestamp_ms: int,
    time_from: TimeFrom,
    boundary: Boundary = Boundary.LOWER,
) -> int:
    """Return the offset in ``[begin, end]``; LOWER of a time after all is the end, UPPER before all the begin."""
    low, high = begin, end
    while low < high:
        middle = (low + high) // 2
        time_ms, at = time_from(middle, high)
        before = time_ms < timestamp_ms if boundary is Boundary.LOWER else time_ms <= timestamp_ms
        if at == high or not before:
            high = middle
        else:
            low = at + 1
    if boundary is Boundary.LOWER:
        return low
    return max(low - 1, begin)


class QueueTimes:
    """Store times of one queue's records, for one search. A range without any is walked once.

    ``place`` returns commit offset and size of a record, zeros without a unit; ``units`` says which files are
    there. ``is_light``: the records of a light queue name offsets of their own queues.
    """

    def __init__(
        self,
        log: LogView,
        place: Callable[[int], tuple[int, int]],
        units: UnitSource,
        *,
        is_light: bool,
    ) -> None:
        self._log = log
        self._is_light = is_light
        self._place = place
        self._units = units
        self._unreadable = (0, 0)

    def __call__(self, queue_offset: int, end: int) -> tuple[int, int]:
        """Return the time of the first readable record in ``[queue_offset, end)``, and where it is."""
        begin = at = queue_offset
        while at < end:
            if self._unreadable[0] <= at < self._unreadable[1]:
                at = self._unreadable[1]
                continue
            place = self._place(at)
            if place[1]:
                time_ms = self._log.record_time_ms(*place, -1 if self._is_light else at)
                if time_ms != NO_TIME:
                    break
            at = self._after(at, place, end)
        at = min(at, end)
        if at > begin:
            self._unreadable = (begin, at)
        return (NO_TIME, end) if at == end else (time_ms, at)

    def _after(self, queue_offset: int, place: tuple[int, int], end: int) -> int:
        """Return the next offset to look at: that of the next file, if this one's is missing."""
        if not place[1]:
            return max(self._units.next_there(queue_offset), queue_offset + 1)
        there = self._log.next_there(place[0])
        if there == place[0]:
            return queue_offset + 1
        if there is None:
            return end
        low, high = queue_offset + 1, end
        while low < high:
            middle = (low + high) // 2
            if self._place(middle)[0] < there:
                low = middle + 1
            else:
                high = middle
        return low


def exact(
    log: CommitLogView, queue: ConsumeQueueView, *, timestamp_ms: int, boundary: Boundary
) -> int:
    """Return the queue offset; LOWER of a time after all is the maximum, UPPER before all the minimum."""
    max_offset = queue.max_offset(log.visible_offset)
    min_offset = queue.min_offset(log.min_offset, max_offset)
    times = QueueTimes(log, queue.rebuilt.place, queue, is_light=queue.is_light)
    return search(min_offset, max_offset, timestamp_ms, times, boundary)
