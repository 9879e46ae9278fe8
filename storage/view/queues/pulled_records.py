"""The records of chosen units: verified, their units rebuilt where they are wrong, and joined."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import RebuiltQueue
from storage.view.queues.tag_filter import TagFilter
from storage.view.queues.units import as_units

JOIN_FROM: Final = 9  # as many separate pieces are worth one copy,
JOIN_BELOW: Final = 8 << 10  # when they are shorter than this on average
OPEN_STATES: Final = (states.CHOSEN, kernels.SUSPECT, kernels.REBUILT)

Rows = npt.NDArray[np.int64]
"""Of a table of chosen units."""


class PulledRecords:
    """The records of one pull.

    ``is_full`` says that nothing more is to be taken, ``are_gone`` that there were units whose records the
    log has no more. Without ``rebuilt`` units are taken as they are.
    """

    def __init__(
        self,
        log: CommitLogView,
        rebuilt: RebuiltQueue | None,
        *,
        topic: str,
        queue_id: int,
        queue_offset: int,
        tag_filter: TagFilter,
        max_bytes: int,
    ) -> None:
        self.count = 0
        self.is_full = False
        self.are_gone = False
        self._log = log
        self._rebuilt = rebuilt
        self._topic = np.frombuffer(topic.encode(), np.uint8)
        self._queue_id = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else queue_id
        self._first = queue_offset
        self._filter = tag_filter
        self._max_bytes = max_bytes
        self._bytes = 0
        self._pieces: list[tuple[npt.NDArray[np.uint8], Rows]] = []

    def take(self, chosen: Rows) -> int:
        """Look at the records of chosen units in order, set their states; return how many were settled.

        Fewer than were chosen where a unit was rebuilt that is of another size than had been counted, and
        before one that the writer is to rebuild. Raises QueueRebuilding if that is the first unit of the pull.
        """
        row, end = 0, len(chosen)
        rebuilt = self._rebuilt
        ranges = np.empty((end, 2), np.int64)
        while row < end:
            if chosen[row, kernels.STATE] == states.DAMAGED_LOST:
                others = np.flatnonzero(chosen[row:end, kernels.STATE] != states.DAMAGED_LOST)
                row = row + int(others[0]) if len(others) else end
                continue
            log = self._log.span(int(chosen[row, kernels.COMMIT_OFFSET]))
            if log is not None:
                next_row, range_count, good_count, good_bytes = kernels.verify_chosen(
                    log.array, log.start_offset, log.end_offset, chosen, row, end,
                    self._topic, self._queue_id, self._filter.texts, self._filter.text_ends,
                    rebuilt is not None, ranges,
                )  # fmt: skip
                if range_count:
                    self._pieces.append((log.array, ranges[:range_count]))
                    ranges = ranges[range_count:]
                self.count += int(good_count)
                self._bytes += int(good_bytes)
                row = int(next_row)
                if row == end:
                    break
            state = int(chosen[row, kernels.STATE])
            if state not in OPEN_STATES and (log is None or state < states.DAMAGED):
                row += 1
                continue
            is_doubtful = state == kernels.SUSPECT or state >= states.DAMAGED
            if log is not None and not is_doubtful:
                continue  # its record lies in another file
            if rebuilt is None or state == kernels.REBUILT:
                # The file went while we were at it, or the unit never pointed into one.
                offset = int(chosen[row, kernels.COMMIT_OFFSET])
                is_lost = rebuilt is not None and offset >= self._log.min_offset
                chosen[row, kernels.STATE] = states.DAMAGED_LOST if is_lost else states.FILTERED
                self.are_gone |= not is_lost
                row += 1
                continue
            try:
                gone = _gone_from(rebuilt, chosen[row:end])
            except QueueRebuilding:
                if chosen[row, kernels.QUEUE_OFFSET] == self._first:
                    raise
                self.is_full = True
                return row
            if gone:
                chosen[row : row + gone, kernels.STATE] = kernels.PASSED
                self.are_gone = True
                row += gone
                continue
            is_as_counted = _rebuild(rebuilt, chosen[row])
            if self.count and self._bytes + chosen[row, kernels.RECORD_SIZE] > self._max_bytes:
                self.is_full = True
                return row
            if not is_as_counted:
                end = row + 1
        return end

    def slices(self) -> tuple[memoryview, ...]:
        """Return the records as read-only views of the log, or copied into one when they are many."""
        return join_pieces(self._pieces, self._bytes)


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


def _gone_from(rebuilt: RebuiltQueue, chosen: Rows) -> int:
    """Return for how many units, from the first on, neither log nor queue has anything."""
    first = int(chosen[0, kernels.QUEUE_OFFSET])
    begin = rebuilt.begin()
    if first < begin:  # more was removed meanwhile
        return int(np.searchsorted(chosen[:, kernels.QUEUE_OFFSET], begin))
    if rebuilt.unit(first) is not None:
        return 0
    span = rebuilt.known_span(first)
    if span is None:
        return 1
    alike = chosen[:, kernels.QUEUE_OFFSET] < span.first_queue_offset + span.end
    alike &= chosen[:, kernels.STATE] == kernels.SUSPECT
    alike[0] = True
    alike = alike[: len(alike) if alike.all() else int(np.argmin(alike))]
    places = chosen[: len(alike), kernels.QUEUE_OFFSET] - span.first_queue_offset
    there = as_units(span.array)["size"][places] != 0
    return int(np.argmax(there)) if there.any() else len(there)


def _rebuild(rebuilt: RebuiltQueue, row: Rows) -> bool:
    """Put in the unit that the log has for a row; return whether it is as long as was counted."""
    unit = rebuilt.unit(int(row[kernels.QUEUE_OFFSET]))
    if unit is None:  # its file has gone meanwhile
        row[kernels.STATE] = kernels.PASSED
        return True
    is_as_counted = bool(
        row[kernels.STATE] != kernels.SUSPECT and row[kernels.RECORD_SIZE] == unit.size
    )
    row[kernels.COMMIT_OFFSET] = unit.commit_offset
    row[kernels.RECORD_SIZE] = unit.size
    row[kernels.STATE] = kernels.REBUILT
    return is_as_counted
