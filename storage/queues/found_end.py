"""Where a queue ends whose files were found: by its units, of records up to a commit offset."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.kernels.unit_order import visible_end
from storage.view.queues.unit_search import Units, end_of_units

FEW_BYTES: Final = 410 * UNIT_SIZE  # two pages of units, which are looked at one by one
KEPT_BYTES_MAX: Final = 1 << 10  # of units after an end that was looked for


class FoundEnd(NamedTuple):
    """What was found of a queue's end; it holds until the queue is first written to."""

    limit_commit_offset: int
    end: int  # queue offset
    start: int  # of the last file
    data_size: int  # in it; what follows is one hole
    following: bytes | None = None  # the units after the end, zeros follow; None if they are many

    def ends_at(self, queue_offset: int) -> bool:
        """Whether the last file is known to hold nothing from a queue offset on."""
        if self.data_size <= queue_offset * UNIT_SIZE - self.start:
            return True
        past_end = (queue_offset - self.end) * UNIT_SIZE
        return self.following is not None and past_end >= len(self.following)


class FilesOfQueue(Units, Protocol):
    """The files of a queue, which has some, all of one length."""

    @property
    def units_per_file(self) -> int:
        """How many units a file holds."""
        ...

    def read(self, queue_offset: int, count: int) -> bytes:
        """Return ``count`` units from ``queue_offset`` on; zeros where no file is."""
        ...


def found_end_of(queue: FilesOfQueue, data_size: int, limit: int) -> FoundEnd:
    """Return where a queue ends by units of records up to a limit.

    ``data_size`` is up to where the last of them has data.
    """
    files = queue.files
    last = files[-1].start_offset
    if data_size <= FEW_BYTES:  # all of them at once instead of a search through a hole
        first, count = last // UNIT_SIZE, min(-(-data_size // UNIT_SIZE), queue.units_per_file)
        data = queue.read(first, count)
        units = np.frombuffer(data, np.uint8)
        # Before the first record there is none; pre-fill units that lead to none do not count.
        found = int(visible_end(units, 0, count, limit)) if limit > 0 else 0
        if found or len(files) == 1:
            followed = np.flatnonzero(units[found * UNIT_SIZE :])
            last_at = found * UNIT_SIZE + (int(followed[-1]) + 1 if len(followed) else 0)
            following = data[found * UNIT_SIZE : last_at]
            kept = following if len(following) <= KEPT_BYTES_MAX else None
            return FoundEnd(limit, first + found, last, data_size, kept)
    end = end_of_units(queue, limit) if limit > 0 else files[0].start_offset // UNIT_SIZE
    return FoundEnd(limit, end, last, data_size)
