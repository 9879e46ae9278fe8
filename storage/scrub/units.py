"""Units in the queue files compared with the records they should point to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.scrub.log_windows import ROWS_MAX
from storage.view.queues.comparison import live_units, wrong_units
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.units import UnitBuilder, Units, as_units

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.view.live_topics import LiveTopics
    from storage.view.log.walk import RecordRun
    from storage.view.queues.record_queues import QueueKey

QUEUES_MAX: Final = 1_024  # whose files are kept in mind


class WrongUnits(NamedTuple):
    """Queue offsets ``[begin, end)`` of a queue that have no unit, or another one."""

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
        self._queues: OrderedDict[QueueKey, QueueFiles] = OrderedDict()

    def forget(self) -> None:
        """Have every directory listed again."""
        self._queues.clear()

    def wrong(self, records: RecordRun, topics: LiveTopics) -> Iterator[WrongUnits]:
        """Yield which units of a run are wrong."""
        for key, units, queue_offsets in live_units(self._builder, records, topics):
            for each in wrong_units(partial(self._units, key), units, queue_offsets):
                yield WrongUnits(*key, each.begin, each.end)

    def _units(self, key: QueueKey, first: int, count: int) -> Units:
        for is_new in (False, True):
            queue = self._queues.get(key)
            if queue is None or is_new:
                directory = self._directory / key[0] / str(key[1])
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
