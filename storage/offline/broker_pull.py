"""A broker's pull: its limits, its minimum of a queue, and where it goes on after a missing file.

Limits are 16,000 bytes of units examined in one file, 256 KiB and 32 records of what is in memory. A
store larger than 40 % of the memory has lower limits for its older records; that is left out. Tags are
compared by their hashes, and the client compares the texts.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.message import PullResult
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView, UnitSpan
from storage.view.queues.pull import NO_LIMIT, pull_queue
from storage.view.queues.tag_filter import TagFilter

EXAMINED_MAX: Final = 800
BYTES_MAX: Final = 262_144
BYTES_MIN: Final = 100  # callers cannot ask for less
RECORDS_MAX: Final = 32


def min_offset_of(queue: ConsumeQueueView, min_commit_offset: int, max_offset: int) -> int:
    """Return what a broker that has just started takes for the minimum.

    ConsumeQueue#correctMinOffset looks for the first live unit in the first file alone, so the
    minimum is 0 when that file is wholly expired and not the last.
    """
    last = queue.unit(max_offset - 1)
    if last is None:
        return 0
    if last.commit_offset < min_commit_offset:
        return max_offset
    for file in queue.files[:1]:
        first = file.start_offset // UNIT_SIZE
        for queue_offset in range(first, min(first + file.size // UNIT_SIZE, max_offset)):
            unit = queue.unit(queue_offset)
            if unit is None:
                return 0
            if unit.commit_offset >= min_commit_offset:
                return queue_offset
    return 0


class HashFilter(TagFilter):
    """A tag expression of which hashes alone are compared."""

    def __init__(self, expression: str) -> None:
        super().__init__(expression)
        self.texts = np.empty(0, np.uint8)
        self.text_ends = np.empty(0, np.int64)


class _BrokerQueue:
    """A queue with a broker's minimum; after a missing file it goes on a whole file later."""

    def __init__(self, queue: ConsumeQueueView) -> None:
        self._queue = queue

    def max_offset(self, visible_commit_offset: int, at: int) -> int:
        return self._queue.max_offset(visible_commit_offset, at)

    def min_offset(self, min_commit_offset: int, max_offset: int) -> int:
        return min_offset_of(self._queue, min_commit_offset, max_offset)

    def span(self, queue_offset: int, max_offset: int) -> UnitSpan | None:
        return self._queue.span(queue_offset, max_offset)

    def rebuilt(self, log: CommitLogView) -> None:
        """Return nothing: a broker takes units as they are."""

    def next_file_offset(self, queue_offset: int) -> int | None:
        """Return where the file after a missing one would start, whether it is there or not."""
        units = self._queue.file_unit_count
        if not units:
            return self._queue.next_file_offset(queue_offset)
        return queue_offset - queue_offset % units + units


def pull_as_broker(
    log: CommitLogView,
    queue: ConsumeQueueView,
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    tag_filter: TagFilter,
) -> PullResult:
    """Return what a broker returns; see ``pull_queue`` for the arguments."""
    return pull_queue(
        log,
        _BrokerQueue(queue),
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_messages=min(max(max_messages, 1), RECORDS_MAX),
        max_bytes=min(max(max_bytes, BYTES_MIN), BYTES_MAX),
        tag_filter=tag_filter,
        end_offset=_file_end(queue, queue_offset),
        examined_max=max(EXAMINED_MAX, max_messages),
        skips_lost_files=True,
    )


def _file_end(queue: ConsumeQueueView, queue_offset: int) -> int:
    """Return the queue offset after the file of units that ``queue_offset`` is in."""
    for file in queue.files:
        if 0 <= queue_offset * UNIT_SIZE - file.start_offset < file.size:
            return (file.start_offset + file.size) // UNIT_SIZE
    return NO_LIMIT
