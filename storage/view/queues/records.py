"""Records of a queue, each proved: those of the units that a pull has chosen, or at given queue offsets."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.kernels.columns import STOP_END, STOP_TRUNCATED, stop_text
from storage.message import Damage
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.rebuilt_units import RebuiltUnits
from storage.view.queues.tag_filter import MATCH_ALL, TagFilter
from storage.view.queues.unit_search import NO_UNIT
from storage.view.queues.units import as_units

Offsets = npt.NDArray[np.int64]
JOIN_FROM: Final = 9  # as many separate pieces are worth one copy,
JOIN_BELOW: Final = 8 << 10  # when they are shorter than this on average

Rows = npt.NDArray[np.int64]
"""Of a table of chosen units."""


class PulledRecords:
    """The records of one pull; ``are_gone`` says that there were units whose records the log has no more."""

    def __init__(
        self, log: CommitLogView, *, topic: str, queue_id: int, tag_filter: TagFilter
    ) -> None:
        self.count = 0
        self.byte_count = 0
        self.are_gone = False
        self._log = log
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._queue_id = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else queue_id
        self._filter = tag_filter
        self._pieces: list[tuple[npt.NDArray[np.uint8], Rows]] = []

    def take(self, chosen: Rows, *, rebuilt: bool) -> int:
        """Look at the records of chosen units in order, set their states; return how many were settled.

        Fewer than were chosen where a record does not confirm its unit, unless the units are ``rebuilt``: then
        the record is damaged or gone.
        """
        row, end = 0, len(chosen)
        ranges = np.empty((end, 2), np.int64)
        if rebuilt:
            is_suspect = chosen[:, kernels.STATE] == kernels.SUSPECT
            is_there = chosen[:, kernels.RECORD_SIZE] > 0
            chosen[is_suspect & is_there, kernels.STATE] = states.CHOSEN
            chosen[is_suspect & ~is_there, kernels.STATE] = kernels.PASSED
            self.are_gone |= bool(np.any(is_suspect & ~is_there))
        while row < end:
            _, commit_offset, _, state = chosen[row].tolist()
            if state >= kernels.PASSED:
                others = np.flatnonzero(chosen[row:, kernels.STATE] < kernels.PASSED)
                row = row + int(others[0]) if len(others) else end
                continue
            log = None if state == kernels.SUSPECT else self._log.find(commit_offset)
            if log is None:
                if not rebuilt:
                    return row
                # The file went while we were at it, or the unit never pointed into one.
                is_lost = commit_offset >= self._log.min_offset
                chosen[row, kernels.STATE] = states.DAMAGED_LOST if is_lost else kernels.PASSED
                self.are_gone |= not is_lost
                row += 1
                continue
            next_row, range_count, good_count, good_bytes = kernels.verify_chosen(
                log.array, log.start_offset, log.end_offset, chosen, row, end,
                self._topic, self._queue_id, self._filter.texts, self._filter.text_ends,
                not rebuilt, ranges,
            )  # fmt: skip
            if range_count:
                self._pieces.append((log.array, ranges[:range_count]))
                ranges = ranges[range_count:]
            self.count += int(good_count)
            self.byte_count += int(good_bytes)
            row = int(next_row)
            if row < end and chosen[row, kernels.STATE] >= states.DAMAGED and not rebuilt:
                return row
        return end

    def slices(self) -> tuple[memoryview, ...]:
        """Return the records as read-only views of the log, or copied into one when they are many."""
        return join_pieces(self._pieces, self.byte_count)


def join_pieces(
    pieces: list[tuple[npt.NDArray[np.uint8], Rows]], byte_count: int
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


def damage_of(row: list[int], queue_id: int) -> Damage:
    """Return what is wrong with a damaged unit of a table of chosen ones of a queue."""
    return Damage(
        queue_offset=row[kernels.QUEUE_OFFSET],
        commit_offset=row[kernels.COMMIT_OFFSET],
        size=row[kernels.RECORD_SIZE],
        reason=damage_reason(row[kernels.STATE]),
        queue_id=queue_id,
    )


class RecordsAt(NamedTuple):
    """The first ``looked_at`` of the offsets asked for: their records, joined as a pull's are.

    ``queue_offsets`` and ``commit_offsets`` are those of the records in ``slices``, in order. Of an offset that
    is neither there nor ``damaged`` the record is gone.
    """

    looked_at: int
    queue_offsets: Offsets
    commit_offsets: Offsets
    slices: tuple[memoryview, ...]
    damaged: tuple[Damage, ...]


def records_at(
    log: CommitLogView,
    queue: ConsumeQueueView,
    *,
    topic: str,
    queue_id: int,
    queue_offsets: Offsets,
    max_bytes: int,
) -> RecordsAt:
    """Return the records at ascending queue offsets, as many as ``max_bytes`` has room for, the first always.

    What lies after the queue's end is not looked at: it may be shown later.
    """
    at = int(queue_offsets[-1]) if len(queue_offsets) else 0
    max_offset = queue.max_offset(log.visible_offset, at)
    min_offset = queue.min_offset(log.min_offset, max_offset)
    queue_offsets = queue_offsets[: int(np.searchsorted(queue_offsets, max_offset))]
    chosen = _chosen(queue, queue_offsets, max_offset)
    sizes = np.maximum(chosen[:, kernels.RECORD_SIZE], 0)
    room = int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))
    chosen = chosen[: max(room, 1)]
    records = PulledRecords(log, topic=topic, queue_id=queue_id, tag_filter=MATCH_ALL)
    gone = int(np.searchsorted(queue_offsets[: len(chosen)], min_offset))
    chosen = chosen[gone:]
    settled = _take(records, chosen, queue.rebuilt, max_bytes)
    if settled == 0 and gone == 0 and len(chosen):
        raise QueueRebuilding(topic, queue_id)
    looked_at, chosen = gone + settled, chosen[:settled]
    good = chosen
    damaged: tuple[Damage, ...] = ()
    if records.count != len(chosen):
        good = chosen[chosen[:, kernels.STATE] == states.GOOD]
        bad = chosen[chosen[:, kernels.STATE] >= states.DAMAGED]
        damaged = tuple(damage_of(row, queue_id) for row in bad.tolist())
    return RecordsAt(
        looked_at,
        np.ascontiguousarray(good[:, kernels.QUEUE_OFFSET]),
        np.ascontiguousarray(good[:, kernels.COMMIT_OFFSET]),
        records.slices(),
        damaged,
    )


def _take(
    records: PulledRecords, chosen: npt.NDArray[np.int64], rebuilt: RebuiltUnits, max_bytes: int
) -> int:
    """Take records, and rebuild the units that they do not confirm; return how many were settled.

    Fewer before a unit that the writer is to rebuild, and where there is no room for a rebuilt one.
    """
    done = 0
    while True:
        done += records.take(chosen[done:], rebuilt=False)
        if done == len(chosen):
            return done
        row = chosen[done : done + 1]
        try:
            unit = rebuilt.unit(int(row[0, kernels.QUEUE_OFFSET])) or NO_UNIT
        except QueueRebuilding:
            return done
        if records.count and records.byte_count + unit.size > max_bytes:
            return done
        row[0, kernels.COMMIT_OFFSET], row[0, kernels.RECORD_SIZE] = unit.commit_offset, unit.size
        row[0, kernels.STATE] = kernels.SUSPECT
        done += records.take(row, rebuilt=True)


def _chosen(
    queue: ConsumeQueueView, queue_offsets: Offsets, max_offset: int
) -> npt.NDArray[np.int64]:
    """Return a table of chosen units; SUSPECT where no file has the unit."""
    chosen = kernels.new_chosen(len(queue_offsets))
    chosen[:, kernels.QUEUE_OFFSET] = queue_offsets
    chosen[:, kernels.COMMIT_OFFSET] = -1
    chosen[:, kernels.RECORD_SIZE] = 0
    chosen[:, kernels.STATE] = kernels.SUSPECT
    at = 0
    while at < len(chosen):
        span = queue.span(int(queue_offsets[at]), max_offset)
        if span is None:
            at += 1
            continue
        end = at + int(np.searchsorted(queue_offsets[at:], span.first_queue_offset + span.end))
        found = as_units(span.array)[queue_offsets[at:end] - span.first_queue_offset]
        chosen[at:end, kernels.COMMIT_OFFSET] = found["offset"]
        chosen[at:end, kernels.RECORD_SIZE] = found["size"]
        sound = (found["offset"] >= 0) & (found["size"] > 0)
        chosen[at:end, kernels.STATE] = np.where(sound, states.CHOSEN, kernels.SUSPECT)
        at = end
    return chosen
