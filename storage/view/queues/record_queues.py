"""Which queue each record of a run belongs to, and whether it is in it.

Records of one queue whose queue offsets follow each other in the order of the log are a ``QueueRun``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.record_layout import (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import (
    QUEUE_ID,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    ByteArray,
    Rows,
)
from storage.view.log.walk import RANGE_ROWS_MAX
from storage.view.queues.units import Units

QueueKey = tuple[str, int]
"""Topic and queue id."""
FEW_NUMBERS: Final = 32


class QueueGrouper:
    """Numbers the queues of a run of rows; buffers are made once."""

    def __init__(self) -> None:
        self.group_of = np.empty(RANGE_ROWS_MAX, np.int64)
        self.first_row = np.empty(RANGE_ROWS_MAX, np.int64)
        self.group_size = np.empty(RANGE_ROWS_MAX, np.int64)

    def group(self, data: ByteArray, rows: Rows) -> list[QueueKey]:
        """Fill ``group_of`` and return the queue of each group."""
        count = int(
            group_by_queue(data, rows, len(rows), self.group_of, self.first_row, self.group_size)
        )
        return [queue_of(data, rows[row]) for row in self.first_row[:count].tolist()]


def queue_of(data: ByteArray, row: Rows) -> QueueKey:
    """Return topic and queue id of a row."""
    at = int(row[TOPIC_POSITION])
    topic = data[at : at + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")
    return topic, int(row[QUEUE_ID])


def is_queued(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return which records belong into their queues: not prepared, not rolled back."""
    kind = rows[:, SYS_FLAG] & SYS_FLAG_TRANSACTION_MASK
    queued: npt.NDArray[np.bool_] = (kind != SYS_FLAG_PREPARED) & (kind != SYS_FLAG_ROLLBACK)
    return queued


class QueueRun(NamedTuple):
    """Records that claim the queue offsets ``[begin, end)`` of a queue, one after the other.

    No record of that queue lies between the first, at or after ``commit_offset``, and the last one.
    """

    key: QueueKey
    begin: int
    end: int
    commit_offset: int
    last_commit_offset: int


def runs_of(
    key: QueueKey, units: Units, queue_offsets: npt.NDArray[np.int64]
) -> Iterator[QueueRun]:
    """Yield the runs of one queue's units, which are in the order of the log.

    ``queue_offsets`` has the one which each unit's record claims.
    """
    for begin, end in consecutive(queue_offsets):
        first = int(queue_offsets[begin])
        places = int(units["offset"][begin]), int(units["offset"][end - 1])
        yield QueueRun(key, first, first + end - begin, *places)


def consecutive(numbers: npt.NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of indices whose numbers go up by one; there is at least one number."""
    if len(numbers) <= FEW_NUMBERS:  # of thousands of queues with little each
        few = numbers.tolist()
        breaks = [i for i in range(1, len(few)) if few[i] != few[i - 1] + 1]
    else:
        breaks = (np.flatnonzero(np.diff(numbers) != 1) + 1).tolist()
    yield from zip([0, *breaks], [*breaks, len(numbers)], strict=True)
