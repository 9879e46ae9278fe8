"""The records of chosen units: verified and joined, up to one that does not confirm its unit."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels import pull as kernels
from storage.kernels import unit_record as states
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.tag_filter import TagFilter

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
            log = None if state == kernels.SUSPECT else self._log.span(commit_offset)
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
