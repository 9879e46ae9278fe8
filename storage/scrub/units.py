"""Units in the queue files compared with the records they should point to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.scrub.log_windows import ROWS_MAX
from storage.view.queues.held_units import QUEUE_OFFSET_LIMIT
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.runs import consecutive
from storage.view.queues.units import UnitBuilder, as_units, same_units

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.view.log.walk import RecordRun

QUEUES_MAX: Final = 1_024  # whose files are kept in mind


class WrongUnits(NamedTuple):
    """Queue offsets ``[begin, end)`` of a queue of which some have no unit, or another one."""

    topic: str
    queue_id: int
    begin: int
    end: int


class UnitComparison:
    """Compares the units of runs of records; takes no lock that dispatch waits for."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._builder = UnitBuilder(ROWS_MAX)
        self._queues: OrderedDict[tuple[str, int], QueueFiles] = OrderedDict()

    def forget(self) -> None:
        """Have every directory listed again."""
        self._queues.clear()

    def wrong(self, records: RecordRun, deleted: Mapping[str, int]) -> Iterator[WrongUnits]:
        """Yield which units of a run are wrong, each stretch from its first to its last.

        ``deleted`` gives the commit offset from which on a topic's records count.
        """
        for topic, queue_id, units, queue_offsets in self._builder.build(
            records.data, records.rows, len(records.rows), records.data_offset
        ):
            wanted = as_units(units)
            if topic in deleted:
                alive = wanted["offset"] >= deleted[topic]
                wanted, queue_offsets = wanted[alive], queue_offsets[alive]
                if not len(wanted):
                    continue
            for begin, end in consecutive(queue_offsets):
                first = int(queue_offsets[begin])
                if not 0 <= first < QUEUE_OFFSET_LIMIT:
                    continue
                held = np.zeros(end - begin, wanted.dtype)
                found = self._units(topic, queue_id, first, end - begin)
                held[: len(found)] = found
                bad = np.flatnonzero(~same_units(held, wanted[begin:end]))
                if len(bad):
                    yield WrongUnits(topic, queue_id, first + int(bad[0]), first + int(bad[-1]) + 1)

    def _units(
        self, topic: str, queue_id: int, first: int, count: int
    ) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        key = topic, queue_id
        for is_new in (False, True):
            queue = self._queues.get(key)
            if queue is None or is_new:
                directory = self._directory / topic / str(queue_id)
                queue = self._queues[key] = QueueFiles.whole(self._filesystem, directory)
                while len(self._queues) > QUEUES_MAX:
                    self._queues.popitem(last=False)
            try:
                units = queue.units(first, count)
            except FileNotFoundError:
                units = np.zeros(0, as_units(b"").dtype)
            if len(units) == count and np.all(units["size"]):
                break
        return units
