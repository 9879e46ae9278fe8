"""Pulling from one queue: limits, the two-step tag filter, proof of each record, joined slices.

Work per pull is a handful of calls into kernels, never a step per record. The first step of the tag
filter compares hashes in the units; the second compares the tags themselves in the records. Every
record that is served has passed its checksums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels import pull as kernels
from storage.kernels.columns import STOP_END, STOP_TRUNCATED, stop_text
from storage.message import Damage, PullResult, PullStatus
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import UnitSpan
from storage.view.queues.tag_filter import TagFilter

JOIN_FROM: Final = 9  # as many separate pieces are worth one copy,
JOIN_BELOW: Final = 8 << 10  # when they are shorter than this on average
NO_LIMIT: Final = 1 << 62
EXAMINED_MAX: Final = 65_536  # units looked at in one pull, where not more messages are asked for


class PulledQueue(Protocol):
    """What a pull needs of a queue; ``ConsumeQueueView`` has it, and says what the methods return."""

    def max_offset(self, visible_commit_offset: int) -> int: ...
    def min_offset(self, min_commit_offset: int, max_offset: int) -> int: ...
    def span(self, queue_offset: int, max_offset: int) -> UnitSpan | None: ...
    def next_file_offset(self, queue_offset: int) -> int | None: ...


@dataclass(slots=True, kw_only=True)
class _UnitBounds:
    min_offset: int
    max_offset: int


def damage_reason(state: int) -> str:
    """Say in words what is wrong with a unit or record of a damaged state."""
    if state == kernels.DAMAGED_UNIT:
        return "the queue's unit points outside the commit log"
    if state == kernels.DAMAGED_PLACE:
        return "the record there belongs to another topic or queue"
    if state - kernels.DAMAGED in (STOP_END, STOP_TRUNCATED):
        return "its size is not the one in the queue's unit"
    return stop_text(state - kernels.DAMAGED)


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
    skips_lost_files: bool = False,
) -> PullResult:
    """Return records of a queue from ``queue_offset`` on; the log view's bounds say which are visible.

    The first record is returned however long it is. A damaged one takes its place in ``damaged``
    and counts as met. ``next_offset`` is after the last examined unit. No unit is examined from
    ``end_offset`` on, which must lie after ``queue_offset``, nor are more than ``examined_max`` or,
    where that is more, ``max_messages``. ``skips_lost_files``, of a broker, passes over all units up to
    the next log file where one is lost; the loop that chooses units has it, as there is no second one.
    """
    max_offset = queue.max_offset(log.visible_offset)
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
    if queue.span(queue_offset, max_offset) is None:
        following = _after_hole(queue, queue_offset, max_offset)
        return _nothing(PullStatus.OFFSET_FOUND_NULL, following, bounds)
    max_messages = min(max(max_messages, 1), NO_LIMIT)
    pull = _Pull(
        log, queue, topic, queue_id, tag_filter,
        max_messages=max_messages, max_bytes=max(max_bytes, 1),
        examined_max=max(examined_max, max_messages), skips_lost_files=skips_lost_files,
    )  # fmt: skip
    return pull.run(queue_offset, min(max_offset, end_offset), bounds)


def _after_hole(queue: PulledQueue, queue_offset: int, max_offset: int) -> int:
    """Return where the next file of units starts after a missing one; ``max_offset`` after the last."""
    following = queue.next_file_offset(queue_offset)
    return max_offset if following is None else min(following, max_offset)


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
        topic: str,
        queue_id: int,
        tag_filter: TagFilter,
        *,
        max_messages: int,
        max_bytes: int,
        examined_max: int,
        skips_lost_files: bool,
    ) -> None:
        self._log = log
        self._queue = queue
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._queue_id = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else queue_id
        self._filter = tag_filter
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._examined_max = examined_max
        self._skips_lost_files = skips_lost_files
        self._pieces: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]] = []
        self._records = 0
        self._bytes = 0
        self._gone = False

    def run(self, queue_offset: int, end_offset: int, bounds: _UnitBounds) -> PullResult:
        """Choose, verify and join, one queue file after the other, up to ``end_offset``."""
        examined_max = self._examined_max
        chosen_parts: list[npt.NDArray[np.int64]] = []
        chosen_count = chosen_bytes = examined = event = 0
        at = queue_offset
        while at < end_offset and examined < examined_max:
            span = self._queue.span(at, end_offset)
            if span is None:
                if chosen_count:
                    break
                at = _after_hole(self._queue, at, bounds.max_offset)
                event = event or kernels.REMOVED
                continue
            limits = np.empty(kernels.LIMIT_COUNT, np.int64)
            limits[kernels.RECORDS_MAX] = self._max_messages
            limits[kernels.BYTES_MAX] = self._max_bytes
            limits[kernels.EXAMINED_MAX] = examined_max - examined
            limits[kernels.RECORDS_BEFORE] = chosen_count
            limits[kernels.BYTES_BEFORE] = chosen_bytes
            limits[kernels.SKIPS_LOST_FILES] = self._skips_lost_files
            room = min(
                self._max_messages - chosen_count,
                self._max_bytes // RECORD_SIZE_MIN + 1,
                span.end - span.begin,
            )
            chosen = kernels.new_chosen(room)
            count, index, byte_count, met = kernels.select_units(
                span.array, span.begin, span.end, span.first_queue_offset,
                self._filter.codes, not self._filter.matches_all,
                *self._log.ranges, limits, chosen,
            )  # fmt: skip
            if count:
                chosen = chosen[:count]
                self._verify(chosen)
                chosen_parts.append(chosen)
            else:
                event = met or event
            chosen_count += int(count)
            chosen_bytes += int(byte_count)
            examined += int(index) - span.begin
            at = span.first_queue_offset + int(index)
            if index < span.end:
                break
        return self._result(chosen_parts, event, at, bounds)

    def _verify(self, chosen: npt.NDArray[np.int64]) -> None:
        row, end = 0, len(chosen)
        ranges = np.empty((end, 2), np.int64)
        while row < end:
            log = self._log.span(int(chosen[row, kernels.COMMIT_OFFSET]))
            if log is None:
                # The file went while we were at it, or the unit never pointed into one.
                if chosen[row, kernels.STATE] == kernels.CHOSEN:
                    chosen[row, kernels.STATE] = kernels.FILTERED
                    self._gone = True
                row += 1
                continue
            next_row, range_count, good_count, good_bytes = kernels.verify_chosen(
                log.array, log.start_offset, log.end_offset, chosen, row, end,
                self._topic, self._queue_id, self._filter.texts, self._filter.text_ends, ranges,
            )  # fmt: skip
            if range_count:
                self._pieces.append((log.array, ranges[:range_count]))
                ranges = ranges[range_count:]
            self._records += int(good_count)
            self._bytes += int(good_bytes)
            row = int(next_row)

    def _result(
        self, parts: list[npt.NDArray[np.int64]], event: int, next_offset: int, bounds: _UnitBounds
    ) -> PullResult:
        damaged: list[Damage] = []
        good_parts = parts
        if self._records != sum(map(len, parts)):
            good_parts = [part[part[:, kernels.STATE] == kernels.GOOD] for part in parts]
            for part in parts:
                bad = part[part[:, kernels.STATE] >= kernels.DAMAGED]
                damaged += [_damage(row) for row in bad.tolist()]
        if self._records or damaged:
            status = PullStatus.FOUND
        elif self._gone or (event == kernels.REMOVED and not parts):
            status = PullStatus.MESSAGE_WAS_REMOVING
        else:
            status = PullStatus.NO_MATCHED_MESSAGE
        return PullResult(
            status=status,
            next_offset=next_offset,
            min_offset=bounds.min_offset,
            max_offset=bounds.max_offset,
            record_count=self._records,
            slices=join_pieces(self._pieces, self._bytes),
            damaged=tuple(damaged),
            queue_offset_parts=tuple(part[:, kernels.QUEUE_OFFSET] for part in good_parts),
        )


def join_pieces(
    pieces: list[tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]], byte_count: int
) -> tuple[memoryview, ...]:
    """Return ranges of arrays as read-only views, or copied into one when they are many."""
    count = sum(len(ranges) for _, ranges in pieces)
    if count >= JOIN_FROM and byte_count < count * JOIN_BELOW:
        joined = np.empty(byte_count, np.uint8)
        position = 0
        for array, ranges in pieces:
            position = kernels.gather_ranges(joined, position, array, ranges, len(ranges))
        return (joined.data.toreadonly(),)
    return tuple(
        array.data[begin:end].toreadonly()
        for array, ranges in pieces
        for begin, end in ranges.tolist()
    )


def _damage(row: list[int]) -> Damage:
    return Damage(
        queue_offset=row[kernels.QUEUE_OFFSET],
        commit_offset=row[kernels.COMMIT_OFFSET],
        size=row[kernels.RECORD_SIZE],
        reason=damage_reason(row[kernels.STATE]),
    )
