"""Offsets by store time: the one answer to "the first at or after a time", and a broker's own.

``search`` halves any range of offsets whose times can be asked for: reader, plans and streams share
it. What is lost or damaged has no time; the answer is the offset after the newest readable record that
is older, so a read which starts there leaves out nothing that is intact, and meets the damage. Store
times are taken to grow with the offset.

``as_a_broker`` repeats ConsumeQueue#getOffsetInQueueByTime with its file choice and its arithmetic; the
two differ only where records are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import UNIT_SIZE
from storage.format.store_time import NO_TIME
from storage.view.consume_queue import ConsumeQueueView
from storage.view.log.commit_log import CommitLogView

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


class TimedLog(Protocol):
    """The log as far as times are read from it."""

    def record_time_ms(self, commit_offset: int, size: int) -> int:
        """Return when the record at a commit offset was stored; NO_TIME if no head is there."""
        ...

    def next_there(self, commit_offset: int) -> int | None:
        """Return the commit offset from which on there are bytes: itself, or where the next file starts.

        None after the last file.
        """
        ...


class TimedQueue(Protocol):
    """A queue as far as times are looked for in it."""

    def place(self, queue_offset: int) -> tuple[int, int] | None:
        """Return commit offset and size of a record; None where the unit's file is missing."""
        ...

    def next_file_offset(self, queue_offset: int) -> int | None:
        """Return the first queue offset of the next file that is there, None if none is."""
        ...


class QueueTimes:
    """Store times of one queue's records, for one search. A range without any is walked once."""

    def __init__(self, log: TimedLog, queue: TimedQueue) -> None:
        self._log = log
        self._queue = queue
        self._unreadable = (0, 0)

    def __call__(self, queue_offset: int, end: int) -> tuple[int, int]:
        """Return the time of the first readable record in ``[queue_offset, end)``, and where it is."""
        begin = at = queue_offset
        while at < end:
            if self._unreadable[0] <= at < self._unreadable[1]:
                at = self._unreadable[1]
                continue
            place = self._queue.place(at)
            time_ms = NO_TIME if place is None else self._log.record_time_ms(*place)
            if time_ms != NO_TIME:
                break
            at = self._after(at, place, end)
        at = min(at, end)
        if at > begin:
            self._unreadable = (begin, at)
        return (NO_TIME, end) if at == end else (time_ms, at)

    def _after(self, queue_offset: int, place: tuple[int, int] | None, end: int) -> int:
        """Return the next offset to look at: that of the next file, if this one's is missing."""
        if place is None:
            following = self._queue.next_file_offset(queue_offset)
            return end if following is None else following
        there = self._log.next_there(place[0])
        if there == place[0]:
            return queue_offset + 1
        if there is None:
            return end
        low, high = queue_offset + 1, end
        while low < high:
            middle = (low + high) // 2
            found = self._queue.place(middle)
            if found is None or found[0] < there:
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
    return search(min_offset, max_offset, timestamp_ms, QueueTimes(log, queue), boundary)


def as_a_broker(
    log: CommitLogView, queue: ConsumeQueueView, *, timestamp_ms: int, boundary: Boundary
) -> int:
    """Return what a broker that has just started answers."""
    max_offset = queue.max_offset(log.visible_offset)
    min_offset = queue.broker_min_offset(log.min_offset, max_offset)
    files = [f for f in queue.files if f.start_offset < max_offset * UNIT_SIZE]
    chosen = _choose_file(log, queue, timestamp_ms, boundary, files)
    found = 0
    if chosen is not None:
        first = files[chosen].start_offset // UNIT_SIZE
        last = min(first + files[chosen].size // UNIT_SIZE, max_offset) - 1
        found = _search_file(
            log, queue, timestamp_ms, boundary, first, max(first, min_offset), last
        )
    return min(max(found, min_offset), max_offset)


def _choose_file(
    log: CommitLogView,
    queue: ConsumeQueueView,
    timestamp_ms: int,
    boundary: Boundary,
    files: list[FileEntry],
) -> int | None:
    if boundary is Boundary.LOWER:
        for index, file in enumerate(files[:-1]):
            last = (file.start_offset + file.size) // UNIT_SIZE - 1
            if _cached_time(log, queue, last) >= timestamp_ms:
                return index
        return len(files) - 1 if files else None
    for index in range(len(files) - 1, -1, -1):
        if _cached_time(log, queue, files[index].start_offset // UNIT_SIZE) <= timestamp_ms:
            return index
    return None


def _cached_time(log: CommitLogView, queue: ConsumeQueueView, queue_offset: int) -> int:
    time_ms = _unit_time(log, queue, queue_offset)
    return time_ms if time_ms > 0 else NO_TIME


def _unit_time(log: CommitLogView, queue: ConsumeQueueView, queue_offset: int) -> int:
    unit = queue.unit(queue_offset)
    return NO_TIME if unit is None else log.store_timestamp_ms(unit.commit_offset, unit.size)


def _search_file(
    log: CommitLogView,
    queue: ConsumeQueueView,
    timestamp_ms: int,
    boundary: Boundary,
    first: int,
    low: int,
    last: int,
) -> int:
    """Search units ``[low, last]`` of the file that begins at ``first``."""
    lower = boundary is Boundary.LOWER
    if _unit_time(log, queue, last) < timestamp_ms:
        return last + 1 if lower else last
    if _unit_time(log, queue, low) > timestamp_ms:
        return first if lower else 0
    high = last
    left: int | None = None
    right: int | None = None
    while low <= high:
        middle = first + (low - first + high - first) // 2
        unit = queue.unit(middle)
        if unit is None:
            return 0
        if unit.commit_offset < log.min_offset:
            left, low = middle, middle + 1
            continue
        time_ms = log.store_timestamp_ms(unit.commit_offset, unit.size)
        if time_ms < 0:
            return 0
        if time_ms == timestamp_ms:
            return _edge_of_run(log, queue, timestamp_ms, lower, middle, first, last)
        if time_ms > timestamp_ms:
            right, high = middle, middle - 1
        else:
            left, low = middle, middle + 1
    # A broker keeps byte positions and -1 for "none", so that one byte before the file's start
    # becomes the unit before it.
    found = right if lower else left
    return max(first - 1, 0) if found is None else found


def _edge_of_run(
    log: CommitLogView,
    queue: ConsumeQueueView,
    timestamp_ms: int,
    lower: bool,
    at: int,
    first: int,
    last: int,
) -> int:
    step = -1 if lower else 1
    while first <= at + step <= last and _unit_time(log, queue, at + step) == timestamp_ms:
        at += step
    return at
