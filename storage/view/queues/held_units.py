"""What consume queues held before they were compared with the log: evidence of where records belong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.format.record import Verdict, check_record, decode_record
from storage.view.log.walk import LogFiles
from storage.view.queues.queue_files import NO_UNIT, UNITS_MAX, QueueFiles
from storage.view.queues.record_queues import QueueKey
from storage.view.queues.unit_search import Unit, end_of_units

QUEUE_OFFSET_LIMIT: Final = 1 << 58  # times the size of a unit, it is still a position


class RenamedRecord(NamedTuple):
    """An intact record that has its unit in one queue, and by its own word belongs to another.

    ``unit_key`` and ``queue_offset`` are where the unit is, ``key`` is the queue which the record names.
    """

    unit_key: QueueKey
    queue_offset: int
    commit_offset: int
    size: int
    key: QueueKey


class HeldUnits:
    """The units of all queues as they were, read when a doubt asks for them.

    ``open_queue`` lists the files of a queue. Whoever writes to those files while records are placed
    calls ``remember`` after each run.
    """

    def __init__(self, log: LogFiles, open_queue: Callable[[QueueKey], QueueFiles]) -> None:
        self._log = log
        self._open_queue = open_queue
        self._opened: dict[QueueKey, QueueFiles] = {}
        self._first: dict[QueueKey, Unit] = {}
        self._last: dict[QueueKey, tuple[int, Unit, Unit]] = {}

    def remember(self, key: QueueKey, queue_offset: int, unit: Unit, following: Unit) -> None:
        """Keep what stood at a queue offset before it was written to, and after it.

        Of each queue that is the unit at queue offset 0, as it was first, and the last two given.
        """
        if queue_offset == 0:
            self._first.setdefault(key, unit)
        self._last[key] = queue_offset, unit, following

    def unit(self, key: QueueKey, queue_offset: int) -> Unit:
        """Return a unit as it was; zeros where none was."""
        if not 0 <= queue_offset < QUEUE_OFFSET_LIMIT:
            return NO_UNIT
        if queue_offset == 0 and key in self._first:
            return self._first[key]
        place, unit, following = self._last.get(key, (-2, NO_UNIT, NO_UNIT))
        if queue_offset == place:
            return unit
        return following if queue_offset == place + 1 else self.queue(key).unit(queue_offset)

    def queue(self, key: QueueKey) -> QueueFiles:
        """Return a queue's files as they were at the first look."""
        found = self._opened.get(key)
        if found is None:
            found = self._opened[key] = self._open_queue(key)
        return found

    def holds(self, key: QueueKey, queue_offset: int, commit_offset: int) -> bool:
        """Whether a record's unit stands at a queue offset; a hole is no unit of record 0."""
        unit = self.unit(key, queue_offset)
        return unit.size > 0 and unit.commit_offset == commit_offset

    def place_of(self, key: QueueKey, commit_offset: int, likely: int) -> int | None:
        """Return the queue offset at which a record's unit stands; ``likely`` is looked at first."""
        if self.holds(key, likely, commit_offset):
            return likely
        queue = self.queue(key)
        for file in queue.files:
            first, count = file.start_offset // UNIT_SIZE, file.size // UNIT_SIZE
            units = queue.units(first, count)
            found = np.flatnonzero((units["offset"] == commit_offset) & (units["size"] > 0))
            if len(found):
                return first + int(found[0])
        return None

    def end_before(self, key: QueueKey, commit_offset: int) -> int:
        """Return the queue offset after the units of records before a commit offset."""
        queue = self.queue(key)
        if commit_offset == 0:
            return queue.files[0].start_offset // UNIT_SIZE if queue.files else 0
        return end_of_units(queue, commit_offset)

    def count_within(self, key: QueueKey, queue_offset: int, begin: int, end: int) -> int:
        """Return how many units from a queue offset on point, one after the other, into ``[begin, end)``."""
        count = 0
        while True:
            units = self.queue(key).units(queue_offset + count, UNITS_MAX)
            offsets = units["offset"]
            outside = np.flatnonzero((units["size"] <= 0) | (offsets < begin) | (offsets >= end))
            count += int(outside[0]) if len(outside) else len(units)
            if len(outside) or not len(units):
                return count

    def renamed(self, key: QueueKey, queue_offset: int) -> RenamedRecord | None:
        """Return the record whose unit stands at a queue offset, if it names another queue now.

        It is intact, as long as its unit says, and claims the same queue offset.
        """
        if key[0].startswith(LIGHT_QUEUE_PREFIX):
            return None  # records in there name another queue in any case
        unit = self.unit(key, queue_offset)
        if unit.size <= 0 or unit.is_prefill:
            return None
        file = self._log.find(unit.commit_offset) if unit.commit_offset >= 0 else None
        if file is None:
            return None
        position, data = unit.commit_offset - file.start_offset, file.array.data
        if check_record(data, position, unit.commit_offset) is not Verdict.GOOD:
            return None
        record = decode_record(data, position)
        if (record.total_size, record.queue_offset) != (unit.size, queue_offset):
            return None
        named = (record.topic, record.queue_id)
        if named == key:
            return None
        return RenamedRecord(key, queue_offset, unit.commit_offset, unit.size, named)
