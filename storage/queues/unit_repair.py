"""Units on disk that are not what the log says, written again from it while a store is open, or starts.

Everything in a queue file can be made again from the log, so a unit is repaired by writing what the log
says; a death in the middle leaves some units repaired and others not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.unit_search import Unit
from storage.view.queues.units import Units, as_units, same_units

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from storage.queues.consume_queue import ConsumeQueue
    from storage.queues.queue_table import QueueTable
    from storage.queues.unit_count import LostUnits
    from storage.view.log.parts import RecordSource

BATCH_UNITS: Final = 1 << 16


class _UnitsOnDisk:
    """What a queue's files hold; None where no file is."""

    def __init__(self, queue: ConsumeQueue) -> None:
        self._queue = queue
        self.files = queue.files

    def unit(self, queue_offset: int) -> Unit | None:
        return self._queue.unit(queue_offset) if self._queue.has_file(queue_offset) else None

    def units(self, first: int, count: int) -> Units:
        return as_units(self._queue.read(first, count))


def repair_units(
    log: RecordSource,
    queues: QueueTable,
    topic: str,
    queue_id: int,
    begin: int,
    end: int,
    *,
    commit_range: tuple[int, int],
    since: int = 0,
) -> int:
    """Write units ``[begin, end)`` of a queue again where the log says otherwise; return how many.

    ``commit_range`` is the part of the log whose records are in the queues, ``since`` the commit offset
    from which on the topic's records count. May be called from any thread while the queues are appended
    to; durable with the next sync of the queues. Raises StoreFull.
    """
    queue = queues.get(topic, queue_id)
    extent = Extent(queue.first_offset, queue.next_offset, *commit_range)
    rebuilt = RebuiltUnits(log, topic, queue_id, lambda: since)
    begin, end = max(begin, extent.begin), min(end, extent.end)
    written = 0
    if begin < end:
        run = rebuilt.rebuild(_UnitsOnDisk(queue), begin, end, extent)
        made = run.units[begin - run.begin : end - run.begin]
        for first in range(0, len(made), BATCH_UNITS):
            written += correct_units(queue, begin + first, made[first : first + BATCH_UNITS])
    return written


def correct_units(queue: ConsumeQueue, queue_offset: int, made: Units) -> int:
    """Write units from a queue offset on that are not what the log says; return how many.

    ``made`` has zeros where that is not known. Durable with the next sync of the queues. Raises StoreFull.
    """
    held = as_units(queue.read(queue_offset, len(made)))
    wrong = np.flatnonzero((made["size"] > 0) & ~same_units(held, made))
    if len(wrong):
        first, last = int(wrong[0]), int(wrong[-1])
        corrected = held[first : last + 1].copy()
        corrected[wrong - first] = made[wrong]
        if not queue.overwrite(queue_offset + first, corrected.tobytes()):
            return 0
    return len(wrong)


def repair_lost_units(
    log: RecordSource,
    queues: QueueTable,
    lost: Sequence[LostUnits],
    *,
    commit_range: tuple[int, int],
    since: Mapping[str, int],
) -> int:
    """Make the ends of files again that were cut short, or zeroed; durable. Returns how many units.

    The last unit of a file is written after all others are durable: while it is missing, the next
    start sees that the file is not whole.
    """
    written = 0
    for each in lost:
        queue = queues.get(each.topic, each.queue_id)
        queue.next_offset = queue.find_end(commit_range[1])
    for is_last in (False, True):
        for each in lost:
            begin, end = (each.end - 1, each.end) if is_last else (each.begin, each.end - 1)
            written += repair_units(
                log, queues, each.topic, each.queue_id, begin, end,
                commit_range=commit_range, since=since.get(each.topic, 0),
            )  # fmt: skip
        queues.sync()
    return written
