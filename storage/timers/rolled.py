"""What a broker rolled on: it wrote a record again long before its time, and both of them are pending with us.

Each record that was written again stands for one that was written before it. It is dropped once all is taken
up, which is before either is due and before progress is saved, so nothing of it is to be remembered. Where
the record before is not pending, as its log file has gone, the later one stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.format.timer_files import SECOND_MS, out_ms
from storage.kernels.timers import DUE_MS, IDENTITY, ROLL_COUNT
from storage.timers.pending import without
from storage.timers.reading import read_through
from storage.timers.recalls import ids_in_second

if TYPE_CHECKING:
    from storage.engine.parked_queue import ParkedQueue
    from storage.timers.delivery import DeliveryCounts
    from storage.timers.pending import PendingTimers, TimerBlock

Longs = npt.NDArray[np.int64]
_NONE: Final = np.empty(0, np.int64)


class RolledRecords:
    """The seconds of rolled records that were taken up and not yet compared with what is pending."""

    def __init__(self, pending: PendingTimers, queue: ParkedQueue, counts: DeliveryCounts) -> None:
        self._pending = pending
        self._queue = queue
        self._counts = counts
        self._outs_ms = _NONE

    def take_up(self, said: Longs) -> None:
        """Note those among some records of the timer topic."""
        rolled = said[said[:, ROLL_COUNT] > 0]
        if len(rolled):
            self._outs_ms = np.union1d(self._outs_ms, out_ms(rolled[:, DUE_MS]))

    def drop_repeated(self) -> None:
        """Leave one row of each message pending; all of the timer topic is taken up, or progress is to be saved. Raises OSError."""
        if not len(self._outs_ms):
            return
        near = [_NONE, *(self._near(block) for block in self._pending.blocks)]
        found: list[tuple[Longs, ...]] = [(_NONE, _NONE, _NONE)]
        for records, _, said in read_through(self._queue, np.sort(np.concatenate(near))):
            ids = ids_in_second(said[:, IDENTITY], said[:, DUE_MS])
            found.append((ids, said[:, ROLL_COUNT], records.queue_offsets))
        ids, roll_counts, queue_offsets = map(np.concatenate, zip(*found, strict=True))
        _, messages = np.unique(ids, return_inverse=True)
        firsts = np.full(len(ids), np.iinfo(np.int64).max)
        np.minimum.at(firsts, messages, roll_counts)
        repeated = queue_offsets[roll_counts > firsts[messages]]
        if len(repeated):
            self._pending.blocks = without(self._pending.blocks, repeated)
        self._counts.repeated += len(repeated)
        self._outs_ms = _NONE

    def _near(self, block: TimerBlock) -> Longs:
        """Return the queue offsets of a block's rows in one of the seconds; a recall's row is a second early."""
        begin, end = block.head, len(block.rows)
        outs_ms = out_ms(block.dues_ms(begin, end))
        is_near = np.isin(outs_ms, self._outs_ms) | np.isin(outs_ms + SECOND_MS, self._outs_ms)
        return block.queue_offsets(begin, end)[is_near]
