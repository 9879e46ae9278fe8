"""Where the records of a log stand in their queue: the one rule, for starts, the job ``rebuild`` and doctor.

A record says its queue offset, and that is its place if the log's order agrees. No checksum of a broker's
covers the offset, the queue id or the topic, so a flipped bit in one of them must cost that record alone:

* Two records that follow each other are right, and a unit that points to its record is.
* A single record ahead of the one before is right if damage between them has room for what is missing.
* A single record that does not fit takes no place: it has the name of another queue, or a wrong offset.
* Records that begin at 0 again are of a topic that was deleted and created again.

What no record says is ``suspect``: the rebuild of ``rebuilt_units`` makes those units.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.log.walk import DamagedRange
from storage.view.queues.queue_files import UNITS_MAX
from storage.view.queues.record_queues import QueueRun
from storage.view.queues.units import Units

QUEUE_OFFSET_LIMIT: Final = 1 << 58  # times the size of a unit, it is still a position

Holds = Callable[[int, int], bool]
"""Whether the unit at a queue offset points to a commit offset."""


class QueueOrder:
    """Takes the runs of one queue in the log's order, and knows where the queue begins and ends.

    With ``next_offset`` it goes on from there; otherwise the first record decides, and what is damaged before
    it counts if ``log_begin`` is 0: it was not removed.
    """

    def __init__(self, next_offset: int | None = None, *, log_begin: int = 0) -> None:
        self.next_offset = next_offset
        """The queue offset after the last record, None while there is none."""
        self.begin_offset = next_offset
        self.since = 0
        """The commit offset from which on records are of the topic as it was created last."""
        self.is_straight = True
        """Whether every record stands where it says."""
        self.last_commit_offset = -1
        self._log_begin = log_begin
        self._suspect: list[tuple[int, int]] = []
        self._sure_offset = next_offset or 0  # before a record that no other agrees with yet
        self._aside: QueueRun | None = None  # does not fit, and nothing has come since

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands in the queue from where it begins on."""
        return self.next_offset is None or self.next_offset == self.begin_offset

    def doubt(self, begin: int, end: int) -> None:
        """Have units ``[begin, end)`` rebuilt."""
        self._suspect.append((begin, end))

    def suspects(self) -> Iterator[tuple[int, int]]:
        """Yield the queue offsets whose units are to be rebuilt, in order, each once."""
        at, end_offset = self.begin_offset or 0, self.next_offset or 0
        for begin, end in sorted(self._suspect):
            begin, end = max(begin, at), min(end, end_offset)
            if begin < end:
                yield begin, end
                at = end

    def take(self, run: QueueRun, damage: Sequence[DamagedRange], holds: Holds) -> int:
        """Take the next run; return how many of its first records do not stand where they say.

        ``damage`` has the damaged ranges of the log before it, in order.
        """
        if run.begin == self.next_offset and self._aside is None:
            self._go_to(run, is_sure=True)
            return 0
        aside, self._aside = self._aside, None
        count = joined_count = run.end - run.begin
        joined = run
        if aside is not None and aside.end == run.begin and aside.begin >= 0:
            joined = run._replace(begin=aside.begin, commit_offset=aside.commit_offset)
            joined_count = joined.end - joined.begin
        skipped = self._place(joined, damage, holds, is_second=aside is not None)
        if skipped or joined is not run:
            self.is_straight = False
        if skipped == joined_count:
            self._aside = joined
        elif joined is not run:
            self.doubt(joined.begin + skipped, run.begin)
        return min(max(skipped - (joined_count - count), 0), count)

    def _place(
        self, run: QueueRun, damage: Sequence[DamagedRange], holds: Holds, *, is_second: bool
    ) -> int:
        """Place a run, which ``is_second`` to one that did not fit; return how many of its first records do not fit."""
        next_offset, count = self.next_offset, run.end - run.begin
        is_sure, skipped = count > 1, 0
        damaged = self._damaged_before(run, damage)
        if run.begin < 0 < run.end:
            run = run._replace(begin=0, commit_offset=run.commit_offset + 1)
            return count - run.end + self._place(run, damage, holds, is_second=True)
        if not 0 <= run.begin < QUEUE_OFFSET_LIMIT:
            return count
        if next_offset is None:
            begin = run.begin
            if self._log_begin == 0 and damaged:
                begin = 0  # what came before was damaged, not removed
            elif is_second:
                begin = max(begin - 1, 0)
            self._begin_at(begin, run.begin)
            self._sure_offset = 0
        elif run.begin > next_offset:
            room = damaged
            if is_sure or is_second:
                room = max(room, run.commit_offset - self.last_commit_offset - RECORD_SIZE_MIN)
            if (run.begin - next_offset) * RECORD_SIZE_MIN > room:
                return count
            self.doubt(next_offset, run.begin)
        elif run.begin < next_offset:
            is_held = run.begin in (0, next_offset - 1) and holds(run.begin, run.commit_offset)
            is_new = run.begin == 0 or run.begin * RECORD_SIZE_MIN <= damaged
            if (run.begin == 0 and is_held) or (is_sure and is_new):
                self._begin_at(0, run.begin)
                self.since = self.last_commit_offset + 1
            elif is_sure and run.begin >= self._sure_offset:
                self._go_back(run)
            elif is_held:
                self.doubt(run.begin, next_offset)
            elif is_sure and run.begin == next_offset - 1:
                skipped = 1  # the first record has the name of another queue
            else:
                return count
            self.is_straight = False
        self._go_to(run, is_sure=is_sure or run.begin == next_offset)
        return skipped

    def _begin_at(self, begin: int, first: int) -> None:
        self._suspect.clear()
        self.begin_offset = begin
        self.doubt(begin, first)

    def _go_back(self, run: QueueRun) -> None:
        """Go back to before a single record, which was wrong."""
        begin, end = self.begin_offset or 0, self.next_offset or 0
        if end == begin + 1 and begin >= run.begin:  # it was the queue's first
            begin = self.begin_offset = max(run.begin - 1, 0)
            self.doubt(begin, run.begin)
        self.doubt(run.begin, end)

    def _go_to(self, run: QueueRun, *, is_sure: bool) -> None:
        self.next_offset, self.last_commit_offset = run.end, run.last_commit_offset
        if is_sure:
            self._sure_offset = run.end

    def _damaged_before(self, run: QueueRun, damage: Sequence[DamagedRange]) -> int:
        """Return how many bytes are damaged between the record placed last and a run."""
        first = bisect_left(damage, self.last_commit_offset, key=attrgetter("begin_offset"))
        end = bisect_left(damage, run.commit_offset, lo=first, key=attrgetter("begin_offset"))
        return sum(each.end_offset - each.begin_offset for each in damage[first:end])

    def finish(
        self,
        damage: Sequence[DamagedRange],
        units: Callable[[int, int], Units],
        *,
        sure_offset: int | None,
    ) -> None:
        """Take the end of the log: a last record that did not fit comes next.

        Damaged records after it whose ``units`` stand there keep their places: those below ``sure_offset``, or
        all if that is None.
        """
        if self._aside is not None:
            if self.next_offset is None:
                self.begin_offset = self.next_offset = 0
            count = self._aside.end - self._aside.begin
            self.doubt(self.next_offset, self.next_offset + count)
            self.next_offset += count
            self.last_commit_offset = self._aside.last_commit_offset
        if self.next_offset is None or not damage:
            return
        begins, ends = np.array([*map(_range_of, damage)], np.int64).T
        limits = ends if sure_offset is None else np.minimum(ends, sure_offset)
        while True:
            held = units(self.next_offset, UNITS_MAX)
            offsets = held["offset"].astype(np.int64)
            number = np.searchsorted(begins, offsets, "right") - 1
            kept = (held["size"] > 0) & (number >= 0) & (offsets < limits[number])
            kept &= offsets > self.last_commit_offset
            count = len(kept) if np.all(kept) else int(np.argmin(kept))
            self.next_offset += count
            self.is_straight &= not count
            if count < UNITS_MAX:
                return


def _range_of(damage: DamagedRange) -> tuple[int, int]:
    return damage.begin_offset, damage.end_offset


def joined_damage(damage: Sequence[DamagedRange]) -> list[DamagedRange]:
    """Return damaged ranges, given in order, with those that touch made one."""
    found: list[DamagedRange] = []
    for each in damage:
        if found and each.begin_offset <= found[-1].end_offset:
            last = found.pop()
            end = max(last.end_offset, each.end_offset)
            each = DamagedRange(last.begin_offset, end, last.reason)
        found.append(each)
    return found
