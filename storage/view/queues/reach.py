"""How far queues reach whose newest units or oldest file are lost, while no writer runs.

The start of a writer counts the units of all queues, and makes again what is missing. Without a writer a
reader does the same, once: where the files hold another number of units than the checkpoint says were
synced, the log is walked for the queue offsets that its records say.
"""

from __future__ import annotations

import threading
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StoreClosed
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.log.walk import RANGE_ROWS_MAX, RecordRun, walk_range
from storage.view.queues.queue_files import QueueFiles, heads_on_disk, queue_head
from storage.view.queues.rebuilt_units import RebuiltUnits
from storage.view.queues.unit_search import end_of_units
from storage.view.queues.units import QueueUnits, UnitBuilder, as_units

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.checkpoint.durable_slots import DurablePositions
    from storage.files.filesystem import FileSystem
    from storage.view.incarnations import Incarnations
    from storage.view.log.commit_log import CommitLogView
    from storage.view.queues.record_queues import QueueKey


class Reach(NamedTuple):
    """Queue offsets ``[begin, end)`` of the records that the log has of a queue."""

    begin: int
    end: int
    last_commit_offset: int


class QueueReach:
    """Looks once, and when it is asked next after ``forget``. Safe to use from several threads.

    ``at_rest`` gives what was durable when the last writer went, None while one runs or where that is not
    known.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log: CommitLogView,
        *,
        at_rest: Callable[[], DurablePositions | None],
        incarnations: Callable[[], Incarnations],
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._log = log
        self._at_rest = at_rest
        self._incarnations = incarnations
        self._guard = threading.Lock()
        self._found: dict[QueueKey, Reach] | None = None
        self._is_ended = False

    def of(self, topic: str, queue_id: int) -> Reach | None:
        """Return what the log has of a queue; None where the queues' files hold all that was synced."""
        with self._guard:
            if self._found is None:
                self._found = self._look()
            return self._found.get((topic, queue_id))

    def forget(self) -> None:
        """Look again: a writer has started, or a topic has come or gone."""
        with self._guard:
            self._found = None

    def end(self) -> None:
        """End looks with StoreClosed, from here on."""
        self._is_ended = True

    def _check_goes_on(self) -> None:
        if self._is_ended:
            raise StoreClosed("the reader is closed")

    def _look(self) -> dict[QueueKey, Reach]:
        durable = self._at_rest()
        if durable is None or self._held_units(durable.dispatched_offset) == durable.unit_count:
            return {}
        return self._walk()

    def _held_units(self, limit_commit_offset: int) -> int:
        """Count the units of all queues' files before a commit offset; -1 where one is lost between others."""
        count = 0
        for topic, queue_id, file in heads_on_disk(self._filesystem, self._directory):
            self._check_goes_on()
            head = queue_head(file, limit_commit_offset)
            if head is not None:
                count += head.end - head.begin
                continue
            queue = QueueFiles.whole(self._filesystem, self._directory / topic / str(queue_id))
            if any(
                after.start_offset > before.end_offset for before, after in pairwise(queue.files)
            ):
                return -1
            if queue.files:
                rebuilt = RebuiltUnits(
                    self._log, topic, queue_id, partial(self._incarnations().of, topic)
                )
                end = end_of_units(queue, limit_commit_offset)
                end = rebuilt.end_after(queue.held, end, limit_commit_offset)
                count += end - queue.files[0].start_offset // UNIT_SIZE
        return count

    def _walk(self) -> dict[QueueKey, Reach]:
        incarnations = self._incarnations()
        found: dict[QueueKey, Reach] = {}
        builder = UnitBuilder(RANGE_ROWS_MAX)
        log = self._log
        for part in log.parts(log.min_offset, log.end_offset):
            for step in walk_range(part.data, part.data_offset, part.begin_offset, part.end_offset):
                self._check_goes_on()
                if not isinstance(step, RecordRun):
                    continue
                rows = step.rows
                for built in builder.build(step.data, rows, len(rows), step.data_offset):
                    if built.topic != incarnations.deleting_topic:
                        key = built.topic, built.queue_id
                        _reach_on(found, key, built, incarnations.of(built.topic))
        return found


def _reach_on(found: dict[QueueKey, Reach], key: QueueKey, built: QueueUnits, since: int) -> None:
    """Take in the next records of a queue; an offset that records before it leave no room for is wrong."""
    commit_offsets = as_units(built.units)["offset"]
    counted = commit_offsets >= since
    offsets, commit_offsets = built.queue_offsets[counted], commit_offsets[counted]
    for queue_offset, commit_offset in (
        (int(offsets[place]), int(commit_offsets[place])) for place in (0, -1) if len(offsets)
    ):
        known = found.get(key)
        if known is None:
            found[key] = Reach(queue_offset, queue_offset + 1, commit_offset)
            continue
        room = (commit_offset - known.last_commit_offset) // RECORD_SIZE_MIN
        if known.end <= queue_offset <= known.end + room:
            found[key] = Reach(known.begin, queue_offset + 1, commit_offset)
