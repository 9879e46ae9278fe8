"""Pulling from one queue: limits, the two-step tag filter, proof of each record, joined slices.

Work per pull is a handful of calls into kernels, never a step per record. The first step of the tag
filter compares hashes in the units; the second compares the tags themselves in the records. Every
record that is served has passed its checksums, and says that it is the unit's. Where one does not, the
unit is rebuilt from the log: by the writer where one runs, and the pull ends before it, else in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.kernels.columns import STOP_END, STOP_TRUNCATED, stop_text
from storage.message import Damage, PullResult, PullStatus
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import RebuiltQueue, UnitSpan
from storage.view.queues.pulled_records import PulledRecords
from storage.view.queues.tag_filter import TagFilter

NO_LIMIT: Final = 1 << 62
EXAMINED_MAX: Final = 65_536  # units looked at in one pull, where not more messages are asked for


class PulledQueue(Protocol):
    """What a pull needs of a queue; ``ConsumeQueueView`` has it, and says what the methods return."""

    def max_offset(self, visible_commit_offset: int, at: int) -> int: ...
    def min_offset(self, min_commit_offset: int, max_offset: int) -> int: ...
    def span(self, queue_offset: int, max_offset: int) -> UnitSpan | None: ...
    def next_file_offset(self, queue_offset: int) -> int | None: ...
    def rebuilt(self, log: CommitLogView) -> RebuiltQueue | None: ...


@dataclass(slots=True, kw_only=True)
class _UnitBounds:
    min_offset: int
    max_offset: int


def damage_reason(state: int) -> str:
    """Say in words what is wrong with a unit or record of a damaged state."""
    if state == states.DAMAGED_LOST:
        return "its part of the commit log is gone"
    if state == states.DAMAGED_UNIT:
        return "the queue's unit points outside the commit log"
    if state == states.DAMAGED_PLACE:
        return "the record there belongs to another topic or queue"
    if state == states.DAMAGED_OFFSET:
        return "the record there has another queue offset"
    if state - states.DAMAGED in (STOP_END, STOP_TRUNCATED):
        return "its size is not the one in the queue's unit"
    return stop_text(state - states.DAMAGED)


def pull_queue(
    log: CommitLogView,
    queue: PulledQueue,
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    tag_filter: TagFilter,
    end_offset: int = NO_LIMIT,
    examined_max: int = EXAMINED_MAX,
) -> PullResult:
    """Return records of a queue from ``queue_offset`` on; the log view's bounds say which are visible.

    The first record is returned however long it is. A damaged one takes its place in ``damaged``
    and counts as met. ``next_offset`` is after the last examined unit. No unit is examined from
    ``end_offset`` on, which must lie after ``queue_offset``, nor are more than ``examined_max`` or,
    where that is more, ``max_messages``. Raises QueueRebuilding if the writer is to rebuild the unit at ``queue_offset``.
    """
    max_offset = queue.max_offset(log.visible_offset, queue_offset)
    min_offset = queue.min_offset(log.min_offset, max_offset)
    bounds = _UnitBounds(min_offset=min_offset, max_offset=max_offset)
    if max_offset == 0:
        return _nothing(PullStatus.NO_MESSAGE_IN_QUEUE, 0, bounds)
    if queue_offset < bounds.min_offset:
        return _nothing(PullStatus.OFFSET_TOO_SMALL, bounds.min_offset, bounds)
    if queue_offset == max_offset:
        return _nothing(PullStatus.OFFSET_OVERFLOW_ONE, queue_offset, bounds)
    if queue_offset > max_offset:
        return _nothing(PullStatus.OFFSET_OVERFLOW_BADLY, max_offset, bounds)
    rebuilt = queue.rebuilt(log)
    span = _span(queue, rebuilt, queue_offset, min(max_offset, end_offset))
    if span is None:
        following = _after_hole(queue, queue_offset, max_offset)
        return _nothing(PullStatus.OFFSET_FOUND_NULL, following, bounds)
    max_messages = min(max(max_messages, 1), NO_LIMIT)
    pull = _Pull(
        log, queue, rebuilt, topic, queue_id, queue_offset, tag_filter,
        max_messages=max_messages, max_bytes=min(max(max_bytes, 1), NO_LIMIT),
        examined_max=max(examined_max, max_messages),
    )  # fmt: skip
    return pull.run(queue_offset, min(max_offset, end_offset), span, bounds)


def _after_hole(queue: PulledQueue, queue_offset: int, max_offset: int) -> int:
    """Return where the next file of units starts after a missing one; ``max_offset`` after the last."""
    following = queue.next_file_offset(queue_offset)
    return max_offset if following is None else min(following, max_offset)


def _span(
    queue: PulledQueue, rebuilt: RebuiltQueue | None, queue_offset: int, end_offset: int
) -> UnitSpan | None:
    """Return units from ``queue_offset`` on: of its file, or of the log where units were rebuilt."""
    if rebuilt is None:
        return queue.span(queue_offset, end_offset)
    if rebuilt.is_any_known:
        span = rebuilt.known_span(queue_offset) or queue.span(queue_offset, end_offset)
    else:
        span = queue.span(queue_offset, end_offset)
    if span is None:
        span = rebuilt.span(queue_offset)
    if span is not None and span.first_queue_offset + span.end > end_offset:
        return span._replace(end=end_offset - span.first_queue_offset)
    return span


def _nothing(status: PullStatus, next_offset: int, bounds: _UnitBounds) -> PullResult:
    return PullResult(
        status=status,
        next_offset=next_offset,
        min_offset=bounds.min_offset,
        max_offset=bounds.max_offset,
    )


class _Pull:
    """One pull that has something to look at."""

    def __init__(
        self,
        log: CommitLogView,
        queue: PulledQueue,
        rebuilt: RebuiltQueue | None,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tag_filter: TagFilter,
        *,
        max_messages: int,
        max_bytes: int,
        examined_max: int,
    ) -> None:
        self._log = log
        self._queue = queue
        self._rebuilt = rebuilt
        self._queue_id = queue_id
        self._filter = tag_filter
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._examined_max = examined_max
        self._records = PulledRecords(
            log, rebuilt, topic=topic, queue_id=queue_id, queue_offset=queue_offset,
            tag_filter=tag_filter, max_bytes=max_bytes,
        )  # fmt: skip

    def run(
        self, queue_offset: int, end_offset: int, span: UnitSpan | None, bounds: _UnitBounds
    ) -> PullResult:
        """Choose, verify and join, one queue file after the other, up to ``end_offset``.

        ``span`` is the first of the units.
        """
        chosen_parts: list[npt.NDArray[np.int64]] = []
        chosen_count = chosen_bytes = event = 0
        at, examined_end = queue_offset, queue_offset + self._examined_max
        while at < min(end_offset, examined_end):
            if span is None:
                try:
                    span = _span(self._queue, self._rebuilt, at, end_offset)
                except QueueRebuilding:
                    break  # what precedes it is returned
            if span is None:
                if chosen_count:
                    break
                following = _after_hole(self._queue, at, bounds.max_offset)
                examined_end += following - at
                at = following
                event = event or kernels.REMOVED
                continue
            room = min(
                self._max_messages - chosen_count,
                self._max_bytes // RECORD_SIZE_MIN + 1,
                span.end - span.begin,
            )
            chosen = kernels.new_chosen(room)
            count, index, byte_count, met = kernels.select_units(
                span.array, span.begin, span.end, span.first_queue_offset,
                self._filter.codes, not self._filter.matches_all,
                *self._log.ranges, self._log.stated_end, self._max_messages, self._max_bytes, examined_end - at,
                chosen_count, chosen_bytes, self._rebuilt is not None, chosen,
            )  # fmt: skip
            at = span.first_queue_offset + int(index)
            is_done = index < span.end
            if count:
                chosen = chosen[:count]
                good_before = self._records.count
                settled_count = self._records.take(chosen)
                if settled_count < count:  # a unit was not the one that had been counted
                    at = int(chosen[settled_count, kernels.QUEUE_OFFSET])
                    is_done = self._records.is_full
                    chosen = chosen[:settled_count]
                    byte_count = _counted_bytes(chosen)
                chosen_parts.append(chosen)
                chosen_count += len(chosen)
                chosen_bytes += int(byte_count)
                if self._records.count - good_before != len(chosen):
                    passed = chosen[chosen[:, kernels.STATE] == kernels.PASSED]
                    if len(passed):
                        is_done = self._records.is_full
                        chosen_count -= len(passed)
                        chosen_bytes -= _counted_bytes(passed)
            else:
                event = met or event
            if is_done:
                break
            span = None
        return self._result(chosen_parts, event, at, bounds)

    def _result(
        self, parts: list[npt.NDArray[np.int64]], event: int, next_offset: int, bounds: _UnitBounds
    ) -> PullResult:
        damaged: list[Damage] = []
        good_parts = parts
        records = self._records
        if records.count != sum(map(len, parts)):
            good_parts = [part[part[:, kernels.STATE] == states.GOOD] for part in parts]
            for part in parts:
                bad = part[part[:, kernels.STATE] >= states.DAMAGED]
                damaged += [damage_of(row, self._queue_id) for row in bad.tolist()]
        if records.count or damaged:
            status = PullStatus.FOUND
        elif records.are_gone or (event == kernels.REMOVED and not parts):
            status = PullStatus.MESSAGE_WAS_REMOVING
        else:
            status = PullStatus.NO_MATCHED_MESSAGE
        return PullResult(
            status=status,
            next_offset=next_offset,
            min_offset=bounds.min_offset,
            max_offset=bounds.max_offset,
            record_count=records.count,
            slices=records.slices(),
            damaged=tuple(damaged),
            queue_offset_parts=tuple(part[:, kernels.QUEUE_OFFSET] for part in good_parts),
        )


def _counted_bytes(chosen: npt.NDArray[np.int64]) -> int:
    """Return the bytes of the records that rows stand for, whether they are served or damaged."""
    state = chosen[:, kernels.STATE]
    counted = chosen[(state != states.DAMAGED_UNIT) & (state != states.DAMAGED_LOST)]
    return int(counted[:, kernels.RECORD_SIZE].sum())


def damage_of(row: list[int], queue_id: int) -> Damage:
    """Return what is wrong with a damaged unit of a table of chosen ones of a queue."""
    return Damage(
        queue_offset=row[kernels.QUEUE_OFFSET],
        commit_offset=row[kernels.COMMIT_OFFSET],
        size=row[kernels.RECORD_SIZE],
        reason=damage_reason(row[kernels.STATE]),
        queue_id=queue_id,
    )
