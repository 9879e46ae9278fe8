"""Where the records of a log belong in their consume queue: the one rule, for recovery and for rebuilding.

A record says its queue offset, and that is its place if the records around it agree. No checksum of a
broker's covers the offset, the queue id or the topic, so a flipped bit in one of them must cost that
record alone. With ``next`` as the queue offset after the last record placed, a run belongs:

* *at next*, if it claims that.
* *nowhere*, if it is one record, and the record after it claims next: it has the name of another queue.
* *at next*, if it is one record, and the record after it claims next + 1: its offset is wrong.
* *where it claims, ahead of next*, if a damaged range lies between that has room for what is missing, or
  the next record goes on from it. The units between are those of damaged records, or of records that have
  the name of another queue now.
* *at 0 again*, if it claims that, and goes on from there or had its unit there; and ahead of 0, if damaged
  records before it have room for what is missing. The topic was deleted and created again.
* *at next without its first record*, if that one claims the place of the last record placed, and the run
  goes on. One of the two has the name of another queue: the one without its unit there, or the second.
* *at next*, in the order of the log, otherwise.

At the end of a queue, damaged records whose units stand where it goes on keep their places.

A decision looks at no more than the next two records of the queue, however the log was cut into runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.log.walk import DamagedRange
from storage.view.queues.queue_files import UNITS_MAX, QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.runs import QueueRun
from storage.view.queues.unit_search import NO_UNIT, Unit, end_of_units

NOT_PLACED: Final = -1
RECORDS_SEEN: Final = 3  # a record and the two after it decide where it belongs
QUEUE_OFFSET_LIMIT: Final = 1 << 58  # times the size of a unit, it is still a position


class HeldUnits:
    """The units of all queues as they were, read when a doubt asks for them.

    ``open_queue`` lists the files of a queue. Whoever writes to those files while records are placed calls
    ``remember`` after each run.
    """

    def __init__(self, open_queue: Callable[[QueueKey], QueueFiles]) -> None:
        self._open_queue = open_queue
        self._opened: dict[QueueKey, QueueFiles] = {}
        self._first: dict[QueueKey, Unit] = {}
        self._last: dict[QueueKey, tuple[int, Unit]] = {}

    def remember(self, key: QueueKey, queue_offset: int, unit: Unit) -> None:
        """Keep what stood at a queue offset: of each queue that at 0, as it was first, and the last one given."""
        if queue_offset == 0:
            self._first.setdefault(key, unit)
        self._last[key] = queue_offset, unit

    def queue(self, key: QueueKey) -> QueueFiles:
        """Return a queue's files as they were at the first look."""
        found = self._opened.get(key)
        if found is None:
            found = self._opened[key] = self._open_queue(key)
        return found

    def holds(self, key: QueueKey, queue_offset: int, commit_offset: int) -> bool:
        """Whether a record's unit stood at a queue offset; a hole is no unit of record 0."""
        place, unit = self._last.get(key, (-1, NO_UNIT))
        if queue_offset == 0 and key in self._first:
            unit = self._first[key]
        elif queue_offset != place:
            unit = self.queue(key).unit(queue_offset)
        return unit.size > 0 and unit.commit_offset == commit_offset


class Begins(NamedTuple):
    """The queue begins at a queue offset; what was placed before has left it."""

    queue_offset: int


class Placed(NamedTuple):
    """The records of a run stand from ``place`` on, or nowhere (``NOT_PLACED``)."""

    run: QueueRun
    place: int


class Gap(NamedTuple):
    """Queue offsets ``[begin, end)`` stand for records somewhere in the ranges of the log."""

    begin: int
    end: int
    ranges: tuple[tuple[int, int], ...]


class Withdrawn(NamedTuple):
    """The record that was placed last, at ``place``, does not belong there."""

    commit_offset: int
    place: int


Step = Begins | Placed | Gap | Withdrawn


class QueuePlacer:
    """Places the records of one queue, whose runs it takes in the order of the log.

    ``damage`` are the log's damaged ranges in order; those before a run must be in when it is taken. A
    placer that is given ``next_offset`` goes on from there; otherwise the queue's first record decides,
    and what is damaged before it counts if ``log_begin`` is 0: it was not removed.
    """

    def __init__(
        self,
        key: QueueKey,
        held: HeldUnits,
        damage: Sequence[DamagedRange],
        *,
        next_offset: int | None = None,
        log_begin: int = 0,
    ) -> None:
        self.key = key
        self.begin_offset = next_offset
        self._next_offset = next_offset
        self._held = held
        self._damage = damage
        self._log_begin = log_begin
        self._waiting: deque[QueueRun] = deque()
        self._last_commit_offset = -1  # of the record placed last
        self._last_place = self._last_claim = -1
        self._continued_at: int | None = None  # what a record claims that goes on from the last

    @property
    def next_offset(self) -> int:
        """The queue offset after the last record placed, 0 while there is none."""
        return self._next_offset or 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing stands in the queue from where it begins on."""
        return self._next_offset is None or self._next_offset == self.begin_offset

    def take(self, run: QueueRun) -> None:
        """Take the next run of the queue."""
        self._waiting.append(run)

    def settle(self, *, at_end: bool = False) -> Iterator[Step]:
        """Yield what is decided, in order; every record taken is ``Placed`` once.

        A run may be parted. Without ``at_end`` up to two records wait for those after them.
        """
        while self._waiting:
            run = self._waiting[0]
            if run.begin in (self._next_offset, self._continued_at):
                yield self._put(self._waiting.popleft())
                continue
            claims = self._claims_ahead()
            if len(claims) < RECORDS_SEEN and not at_end:
                return
            self._waiting.popleft()
            yield from self._place(run, claims)

    def _claims_ahead(self) -> list[int]:
        """Return the queue offsets which the next records claim."""
        claims: list[int] = []
        for run in self._waiting:
            claims += range(run.begin, min(run.end, run.begin + RECORDS_SEEN - len(claims)))
            if len(claims) == RECORDS_SEEN:
                break
        return claims

    def _place(self, run: QueueRun, claims: list[int]) -> Iterator[Step]:
        next_offset = self._next_offset
        if next_offset is None:
            next_offset = self._first_offset(run, claims)
            yield self._begin_at(next_offset)
        goes_on = _goes_on(claims)
        following = claims[1] if len(claims) > 1 and not goes_on else None
        if run.begin == next_offset or following == next_offset + 1:
            yield self._put(run)
        elif following == next_offset:
            self._continued_at = None
            yield Placed(run, NOT_PLACED)
        elif run.begin > next_offset:
            gap = self._gap(run, next_offset, goes_on=goes_on)
            if gap is not None:
                yield gap
            yield self._put(run)
        else:
            yield from self._place_back(run, goes_on=goes_on)

    def _place_back(self, run: QueueRun, *, goes_on: bool) -> Iterator[Step]:
        """Place a run that claims less than what comes next."""
        damage = self._damage_before(run)
        if run.begin == self._last_place == self._last_claim and not damage:
            if self._held.holds(self.key, run.begin, run.commit_offset):
                self._next_offset = run.begin
                yield Withdrawn(self._last_commit_offset, run.begin)
                yield self._put(run)
                return
            if goes_on and run.begin > 0:
                yield from self._put_without_first(run)
                return
        if run.begin == 0 and (goes_on or self._held.holds(self.key, 0, run.commit_offset)):
            yield self._begin_at(0)
        elif goes_on and 0 < run.begin * RECORD_SIZE_MIN <= _size_of(damage):
            yield self._begin_at(0)
            yield Gap(0, run.begin, damage)
            self._next_offset = run.begin
        yield self._put(run)

    def _put(self, run: QueueRun) -> Placed:
        place, last = self.next_offset, run.end - run.begin - 1
        self._next_offset = place + last + 1
        self._last_commit_offset = run.last_commit_offset
        self._last_place, self._last_claim = place + last, run.end - 1
        self._continued_at = run.end
        return Placed(run, place)

    def _put_without_first(self, run: QueueRun) -> Iterator[Placed]:
        yield Placed(
            run._replace(end=run.begin + 1, last_commit_offset=run.commit_offset), NOT_PLACED
        )
        if run.end - run.begin > 1:
            # No other record of the queue is between the first and the second.
            yield self._put(run._replace(begin=run.begin + 1, commit_offset=run.commit_offset + 1))

    def _begin_at(self, queue_offset: int) -> Begins:
        self.begin_offset = self._next_offset = queue_offset
        return Begins(queue_offset)

    def _first_offset(self, run: QueueRun, claims: list[int]) -> int:
        """Return where the queue begins: what two records after the first agree on counts for more than its word."""
        if self._log_begin == 0 and self._damage_before(run):
            return 0  # what came before was damaged, not removed
        if not _goes_on(claims) and _goes_on(claims[1:]) and claims[1] > 0:
            return claims[1] - 1
        return run.begin if 0 <= run.begin < QUEUE_OFFSET_LIMIT else 0

    def _gap(self, run: QueueRun, next_offset: int, *, goes_on: bool) -> Gap | None:
        """Return what is missing before a run ahead of next, and make its claim come next.

        None if the claim is wrong.
        """
        missing = run.begin - next_offset
        ranges = self._damage_before(run)
        if missing * RECORD_SIZE_MIN > _size_of(ranges):
            ranges = ((self._last_commit_offset + RECORD_SIZE_MIN, run.commit_offset),)
            if missing * RECORD_SIZE_MIN > _size_of(ranges) or not goes_on:
                return None
        self._next_offset = run.begin
        return Gap(next_offset, run.begin, ranges)

    def _damage_before(self, run: QueueRun) -> tuple[tuple[int, int], ...]:
        """Return the damaged ranges between the record placed last and a run."""
        first = bisect_left(self._damage, self._last_commit_offset, key=_begin_of)
        end = bisect_left(self._damage, run.commit_offset, lo=first, key=_begin_of)
        return tuple((each.begin_offset, each.end_offset) for each in self._damage[first:end])

    def keep_end(self, sure_offset: int | None) -> Iterator[Gap]:
        """After the last run, keep the places of damaged records whose units stand where the queue goes on.

        What is damaged at or after ``sure_offset`` keeps none.
        """
        if self._next_offset is None or not self._damage:
            return
        queue, last_offset = self._held.queue(self.key), self._last_commit_offset
        while True:
            unit = queue.unit(self.next_offset)
            if unit.size <= 0 or unit.commit_offset <= last_offset:
                return
            begin, end = self._damage_at(unit.commit_offset)
            limit = end if sure_offset is None else min(end, sure_offset)
            count = _count_within(queue, self.next_offset, begin, limit)
            if not count:
                return
            begin_offset, self._next_offset = self.next_offset, self.next_offset + count
            last_offset = queue.unit(self.next_offset - 1).commit_offset
            yield Gap(begin_offset, self.next_offset, ((begin, end),))

    def _damage_at(self, commit_offset: int) -> tuple[int, int]:
        """Return the damaged range that holds a commit offset; an empty one if none does."""
        number = bisect_right(self._damage, commit_offset, key=_begin_of) - 1
        if number >= 0 and commit_offset < self._damage[number].end_offset:
            return self._damage[number].begin_offset, self._damage[number].end_offset
        return commit_offset, commit_offset


def settle_ends(
    placers: Mapping[QueueKey, QueuePlacer], *, sure_offset: int | None = None
) -> Iterator[tuple[QueueKey, Step]]:
    """Yield the last steps of every queue, once all runs and all damage are in.

    Of damaged records at the end of a queue, those below ``sure_offset`` keep their places; all if it is
    None.
    """
    for key, placer in placers.items():
        for step in placer.settle(at_end=True):
            yield key, step
        for gap in placer.keep_end(sure_offset):
            yield key, gap


def end_before(queue: QueueFiles, commit_offset: int) -> int:
    """Return the queue offset after the units of records before a commit offset."""
    if commit_offset == 0:
        return queue.files[0].start_offset // UNIT_SIZE if queue.files else 0
    return end_of_units(queue, commit_offset)


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


def _count_within(queue: QueueFiles, queue_offset: int, begin: int, end: int) -> int:
    """Return how many units from a queue offset on point, one after the other, into ``[begin, end)``."""
    count = 0
    while True:
        units = queue.units(queue_offset + count, UNITS_MAX)
        offsets = units["offset"]
        outside = np.flatnonzero((units["size"] <= 0) | (offsets < begin) | (offsets >= end))
        count += int(outside[0]) if len(outside) else len(units)
        if len(outside) or not len(units):
            return count


def _goes_on(claims: Sequence[int]) -> bool:
    """Whether the record after the first claims the queue offset after it."""
    return len(claims) > 1 and claims[1] == claims[0] + 1


def _begin_of(damage: DamagedRange) -> int:
    return damage.begin_offset


def _size_of(ranges: Sequence[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in ranges)
