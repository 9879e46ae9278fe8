"""The writer's rebuild of queues: units on disk that are not what the log says are written again from it.

The running writer calls ``rebuild_units``, for readers and for the scrub. A death in the middle leaves some
units rebuilt and others not.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.format.consume_entry import PREFILL_UNIT, UNIT_SIZE
from storage.view.log.commit_log import ListedLog
from storage.view.queues.rebuild_requests import pending_requests
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.units import Units, as_units, same_units
from storage.view.settings import load_settings
from storage.workers import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.files.filesystem import FileSystem
    from storage.queues.consume_queue import ConsumeQueue
    from storage.queues.dispatch import DispatchWorker
    from storage.queues.queue_table import QueueTable
    from storage.view.layout import StorePaths
    from storage.view.log.commit_log import LogView
    from storage.workers import Workers

_LOG: Final = logging.getLogger(__name__)
BATCH_UNITS: Final = 1 << 16
LOOK_S: Final = 1.0  # between looks for requests
RETRY_S: Final = 5.0  # after a failure


def rebuild_units(
    log: LogView,
    queues: QueueTable,
    topic: str,
    queue_id: int,
    begin: int,
    end: int,
    *,
    commit_range: tuple[int, int],
    since: int = 0,
) -> int:
    """Rebuild units ``[begin, end)`` of a queue, and those up to the nearest confirmed ones.

    Returns how many units the log says otherwise; they are written. ``commit_range`` is the part of the log
    whose records are in the queues, ``since`` the commit offset from which on the topic's records count. Any
    thread may call it while the queues are appended to; durable with the next sync of the queues. Raises
    StoreFull.
    """
    queue = queues.get(topic, queue_id)
    extent = Extent(queue.first_offset, queue.next_offset, *commit_range)
    rebuilt = RebuiltUnits(log, topic, queue_id, queue, lambda: extent, since=lambda: since)
    begin, end = max(begin, extent.begin), min(end, extent.end)
    written = 0
    if begin < end:
        run = rebuilt.rebuild(begin, end)
        if run.begin == extent.begin and extent.min_commit_offset > 0:
            _prefill_front(queue, run.begin, run.units)
        for first in range(0, len(run.units), BATCH_UNITS):
            made = run.units[first : first + BATCH_UNITS]
            written += _correct_units(queue, run.begin + first, made)
    return written


def _prefill_front(queue: ConsumeQueue, queue_offset: int, made: Units) -> None:
    """Make the empty units of deleted records, in front of the first record, what a broker has there."""
    found = np.flatnonzero(made["size"])
    front = made[: int(found[0]) if len(found) else 0]
    held = as_units(queue.read(queue_offset, len(front)))
    front[held["size"] == 0] = as_units(PREFILL_UNIT)[0]


def _correct_units(queue: ConsumeQueue, queue_offset: int, made: Units) -> int:
    """Write units from a queue offset on that are not what the log says; return how many.

    ``made`` has zeros where the log says nothing.
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


class QueueRebuild(Worker):
    """Rebuilds units while ``dispatch`` goes on: those that readers ask for, and for whoever calls ``rebuild``.

    ``min_offset`` says where the log begins. ``file_made`` is called when a removed file was made again:
    readers look at the queue's files anew.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        paths: StorePaths,
        queues: QueueTable,
        dispatch: DispatchWorker,
        *,
        min_offset: Callable[[], int],
        file_made: Callable[[], None],
        workers: Workers | None = None,
    ) -> None:
        super().__init__("rebuild", workers=workers)
        self._filesystem = filesystem
        self._paths = paths
        self._queues = queues
        self._dispatch = dispatch
        self._min_offset = min_offset
        self._file_made = file_made
        self.rebuilt_count = 0  # units, since the start

    def idle_s(self) -> float:
        """Return the time before the first look."""
        return LOOK_S

    def work(self) -> float:
        """Rebuild what readers have asked for; what fails is tried again. Returns when to look again."""
        pause_s = LOOK_S
        for path, request in list(pending_requests(self._filesystem, self._paths.rebuilds)):
            topic, queue_id, at = request.topic, request.queue_id, request.queue_offset
            try:
                count = self.rebuild(topic, queue_id, at, at + 1)
                self._filesystem.unlink(path)
            except Exception as error:  # noqa: BLE001  the other requests are met
                _LOG.warning("queue %d of %s cannot be rebuilt: %s", queue_id, topic, error)
                pause_s = RETRY_S
                continue
            _LOG.warning(
                "queue %d of %s: %d units near queue offset %d were not what the log says, and are rebuilt",
                queue_id, topic, count, at,
            )  # fmt: skip
        return pause_s

    def rebuild(self, topic: str, queue_id: int, begin: int, end: int) -> int:
        """Rebuild units ``[begin, end)`` and those up to the nearest confirmed ones; return how many were wrong.

        A file of them that was removed is made again. Durable with the next checkpoint. Raises OSError,
        StoreFull, StoreBusy.
        """
        key = topic, queue_id
        if not self._queues.next_offset(*key):
            return 0  # its topic was deleted
        made: list[int] = []
        end_offset = self._dispatch.between(
            lambda: made.extend(self._queues.make_removed_files(key, begin, end))
        )
        if made:
            begin = min(begin, made[0] // UNIT_SIZE)
            end = max(end, made[-1] // UNIT_SIZE + self._queues.units_per_file)
        settings = load_settings(self._filesystem, self._paths)
        written = rebuild_units(
            ListedLog(self._filesystem, self._paths.commit_log),
            self._queues,
            topic,
            queue_id,
            begin,
            end,
            commit_range=(self._min_offset(), end_offset),
            since=settings.deleted_topics.get(topic, 0),
        )
        if made:
            self._file_made()
        self.rebuilt_count += written
        return written
