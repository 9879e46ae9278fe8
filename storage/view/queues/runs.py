"""Runs: records of one queue whose queue offsets follow each other in the order of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.view.queues.record_queues import QueueKey
from storage.view.queues.units import Units

FEW_NUMBERS: Final = 32


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
