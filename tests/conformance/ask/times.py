"""Offsets by store time, as a broker that has just started answers.

It repeats ConsumeQueue#getOffsetInQueueByTime with its file choice and its arithmetic.
``storage.view.queues.time_search`` answers otherwise only where records are missing.
"""

from __future__ import annotations

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import UNIT_SIZE
from storage.format.store_time import HEAD_SIZE, NO_TIME, store_time_in
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.time_search import Boundary

from .pulls import min_offset_of


def stored_at(log: CommitLogView, commit_offset: int, size: int) -> int:
    """Return the store time in a record's bytes, unchecked; NO_TIME if they are not there."""
    record = log.bytes_at(commit_offset, size)
    return NO_TIME if record is None or size < HEAD_SIZE else store_time_in(record)


def offset_by_time(
    log: CommitLogView, queue: ConsumeQueueView, *, timestamp_ms: int, boundary: Boundary
) -> int:
    """Return the queue offset."""
    max_offset = queue.max_offset(log.visible_offset)
    min_offset = min_offset_of(queue, log.min_offset, max_offset)
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
    return stored_at(log, unit.commit_offset, unit.size)


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
        if unit.commit_offset < log.min_offset:
            left, low = middle, middle + 1
            continue
        time_ms = stored_at(log, unit.commit_offset, unit.size)
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
