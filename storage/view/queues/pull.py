"""Pulling from one queue: limits, the two-step tag filter, proof of each record, joined slices.

Work per pull is a handful of calls into kernels, never a step per record. The first step of the tag
filter compares hashes in the units; the second compares the tags themselves in the records. Every
record that is served has passed its checksums, and says that it is the unit's. Where one does not, the
unit is rebuilt from the log: by the writer where one runs, and the pull ends before it, else in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.message import Damage, PullResult, PullStatus
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.rebuilt_units import RebuiltUnits, UnitSpan
from storage.view.queues.records import PulledRecords, damage_of
from storage.view.queues.tag_filter import TagFilter

NO_LIMIT: Final = 1 << 62
EXAMINED_MAX: Final = 65_536  # units looked at in one pull, where not more messages are asked for


def pull_queue(
    log: CommitLogView,
    queue: ConsumeQueueView,
    *,
    topic: str,
    queue_id: int,
    queue_offset: int,
    max_messages: int,
    max_bytes: int,
    tag_filter: TagFilter,
    end_offset: int = NO_LIMIT,
) -> PullResult:
    """Return records of a queue from ``queue_offset`` on; the log view's bounds say which are visible.

    The first record is returned however long it is. A damaged one takes its place in ``damaged``
    and counts as met. ``next_offset`` is after the last examined unit. No unit is examined from
    ``end_offset`` on, which must lie after ``queue_offset``, nor are more than ``EXAMINED_MAX`` or,
    where that is more, ``max_messages``. Raises QueueRebuilding if the writer is to rebuild the unit at ``queue_offset``.
    """
    max_offset = queue.max_offset(log.visible_offset, queue_offset)
    min_offset = queue.min_offset(log.min_offset, max_offset)
    result = partial(PullResult, min_offset=min_offset, max_offset=max_offset)
    if max_offset == 0:
        return result(status=PullStatus.NO_MESSAGE_IN_QUEUE, next_offset=0)
    if queue_offset < min_offset:
        return result(status=PullStatus.OFFSET_TOO_SMALL, next_offset=min_offset)
    if queue_offset == max_offset:
        return result(status=PullStatus.OFFSET_OVERFLOW_ONE, next_offset=queue_offset)
    if queue_offset > max_offset:
        return result(status=PullStatus.OFFSET_OVERFLOW_BADLY, next_offset=max_offset)
    rebuilt, end_offset = queue.rebuilt, min(max_offset, end_offset)
    span = _span(queue, rebuilt, queue_offset, end_offset)
    if span is None:
        following = _after_hole(queue, queue_offset, max_offset)
        return result(status=PullStatus.OFFSET_FOUND_NULL, next_offset=following)
    records = PulledRecords(log, topic=topic, queue_id=queue_id, tag_filter=tag_filter)
    max_messages = min(max(max_messages, 1), NO_LIMIT)
    max_bytes = min(max(max_bytes, 1), NO_LIMIT)
    parts: list[npt.NDArray[np.int64]] = []
    chosen_count = chosen_bytes = event = 0
    at, examined_end = queue_offset, queue_offset + max(EXAMINED_MAX, max_messages)
    while True:
        is_done = is_doubtful = False
        if span is None:
            if chosen_count:
                break
            following = _after_hole(queue, at, max_offset)
            examined_end += following - at
            at, event = following, event or kernels.REMOVED
        else:
            room = min(max_messages - chosen_count, max_bytes // RECORD_SIZE_MIN + 1)
            chosen = kernels.new_chosen(min(room, span.end - span.begin))
            count, index, byte_count, met = kernels.select_units(
                span.array, span.begin, span.end, span.first_queue_offset,
                tag_filter.codes, not tag_filter.matches_all,
                *log.ranges, log.stated_end, max_messages, max_bytes, examined_end - at,
                chosen_count, chosen_bytes, chosen,
            )  # fmt: skip
            at, is_done = span.first_queue_offset + int(index), index < span.end
            if count:
                settled_count = records.take(chosen[:count], rebuilt=span.rebuilt)
                if settled_count < count:
                    at, is_done, is_doubtful = (
                        int(chosen[settled_count, kernels.QUEUE_OFFSET]),
                        False,
                        True,
                    )
                chosen = chosen[:settled_count]
                parts.append(chosen)
                if span.rebuilt or is_doubtful:
                    chosen = chosen[chosen[:, kernels.STATE] != kernels.PASSED]
                    byte_count = _counted_bytes(chosen)
                chosen_count += len(chosen)
                chosen_bytes += int(byte_count)
            else:
                event = met or event
        if is_done or at >= min(end_offset, examined_end):
            break
        try:
            span = _span(queue, rebuilt, at, end_offset, is_doubtful=is_doubtful)
        except QueueRebuilding:
            if at == queue_offset:
                raise
            break  # what precedes it is returned
    return _result(result, records, parts, queue_id, event, at)


def _after_hole(queue: ConsumeQueueView, queue_offset: int, max_offset: int) -> int:
    """Return where the next file of units starts after a missing one; ``max_offset`` after the last."""
    starts = (file.start_offset // UNIT_SIZE for file in queue.files)
    return min(next((start for start in starts if start > queue_offset), max_offset), max_offset)


def _span(
    queue: ConsumeQueueView,
    rebuilt: RebuiltUnits,
    queue_offset: int,
    end_offset: int,
    *,
    is_doubtful: bool = False,
) -> UnitSpan | None:
    """Return units from ``queue_offset`` on: of its file, or of the log where they are rebuilt, or doubtful."""
    span = rebuilt.known_span(queue_offset)
    if span is None and not is_doubtful:
        span = queue.span(queue_offset, end_offset)
    if span is None and (is_doubtful or rebuilt.unit(queue_offset) is not None):
        span = rebuilt.span(queue_offset)
    if span is not None and span.first_queue_offset + span.end > end_offset:
        return span._replace(end=end_offset - span.first_queue_offset)
    return span


def _result(
    result: Callable[..., PullResult],
    records: PulledRecords,
    parts: list[npt.NDArray[np.int64]],
    queue_id: int,
    event: int,
    next_offset: int,
) -> PullResult:
    damaged: list[Damage] = []
    good_parts = parts
    if records.count != sum(map(len, parts)):
        good_parts = [part[part[:, kernels.STATE] == states.GOOD] for part in parts]
        for part in parts:
            bad = part[part[:, kernels.STATE] >= states.DAMAGED]
            damaged += [damage_of(row, queue_id) for row in bad.tolist()]
    if records.count or damaged:
        status = PullStatus.FOUND
    elif records.are_gone or (event == kernels.REMOVED and not parts):
        status = PullStatus.MESSAGE_WAS_REMOVING
    else:
        status = PullStatus.NO_MATCHED_MESSAGE
    return result(
        status=status,
        next_offset=next_offset,
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
