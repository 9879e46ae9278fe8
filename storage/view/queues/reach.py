"""How far queues reach whose newest units or oldest file are lost.

The start of a writer counts the units of all queues, and makes again what is missing. Without a writer a
reader does the same, once: where the files hold another number of units than the checkpoint says were
synced, the log is walked for the queue offsets that its records say. A writer that runs makes removed files
again when it next looks at their names; until then a queue without its first file is looked up in the log
too: where some of the log was deleted, and the file may have gone with its records, before the record of its
first unit. So is one that somebody knows to go further than its files do, and no part of the log is read
twice for that until topics change.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from storage.errors import StoreClosed
from storage.format.consume_entry import UNIT_SIZE
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.log.parts import record_runs
from storage.view.log.walk import RANGE_ROWS_MAX
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


NEW_QUEUE_S: Final = 0.1  # in which the writer makes a new queue's first file


class Written(Protocol):
    """What is known of a store's writer."""

    @property
    def is_written(self) -> bool:
        """Whether one runs."""
        ...

    @property
    def durable_at_rest(self) -> DurablePositions | None:
        """What was durable when the last one went; None while one runs, or where that is not known."""
        ...


class Reach(NamedTuple):
    """Queue offsets ``[begin, end)`` of the records that the log has of a queue."""

    begin: int
    end: int
    last_commit_offset: int
    grows: bool = False  # a writer goes on beside it


class _Walked:
    """What was read of the log, of commit offsets ``[begin, end)``."""

    def __init__(self) -> None:
        self.begin = self.end = -1
        self.found: dict[QueueKey, Reach] = {}
        self.longer: dict[QueueKey, Reach] = {}  # of queues that go on after their files


class QueueReach:
    """Looks once, and when it is asked next after ``forget``. Safe to use from several threads.

    ``written`` gives what the writer says of itself.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        log: CommitLogView,
        written: Callable[[], Written],
        *,
        incarnations: Callable[[], Incarnations],
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._log = log
        self._written = written
        self._incarnations = incarnations
        self._guard = threading.Lock()
        self._found: dict[QueueKey, Reach] | None = None
        self._walking = threading.Lock()  # of a walk beside a writer; others go on without it
        self._walked = _Walked()  # another one whenever topics changed: what is added then is lost
        self._begin_there: set[tuple[QueueKey, int]] = set()  # that was looked up
        self._is_ended = False

    def of(
        self, topic: str, queue_id: int, first_start: int = 0, first_commit_offset: int = 0
    ) -> Reach | None:
        """Return what the log has of a queue; None where the queues' files hold all that was synced.

        ``first_start`` is where its first file starts, in bytes, -1 without files; ``first_commit_offset`` where the
        record of that file's first unit lies, 0 if that is not known.
        """
        key = (topic, queue_id)
        with self._guard:
            if self._found is None:
                self._found = self._look()
            found = self._found.get(key)
            longer = self._walked.longer.get(key)
        if found is None and first_start != 0:
            found = self._without_first_file(key, first_start, first_commit_offset)
        return found or longer

    def after(self, topic: str, queue_id: int, end: int, commit_offset: int) -> Reach | None:
        """Return what the log has of a queue whose files end at a queue offset; None if it ends there too.

        So it is without a writer's word. ``commit_offset`` is where the record of the last unit ends, 0 if that is not
        known.
        """
        if not self._written().is_written:
            return None
        key, walked = (topic, queue_id), self._walked
        known = walked.longer.get(key)
        if known is not None and not commit_offset:
            end, commit_offset = known.end, known.last_commit_offset
        self._walk_from(walked, max(commit_offset, self._incarnations().of(topic)))
        found = walked.found.get(key)
        if found is None or found.end <= end:
            return None
        # A queue offset that the records before it leave no room for is wrong.
        if found.end - end > (found.last_commit_offset - commit_offset) // RECORD_SIZE_MIN + 1:
            return None
        walked.longer[key] = found = found._replace(grows=True)
        return found

    def forget(self) -> None:
        """Look again: a writer has started, or a topic has come or gone."""
        with self._guard:
            self._found = None
            self._walked = _Walked()

    def _without_first_file(
        self, key: QueueKey, first_start: int, first_commit_offset: int
    ) -> Reach | None:
        """Return what the log has of a queue whose first file was removed beside a writer; None if it was not."""
        if (key, first_start) in self._begin_there or not self._written().is_written:
            return None
        if self._log.min_offset:
            return self._before_first_unit(key, first_start, first_commit_offset)
        if first_start < 0 and not self._has_lost_all(*key):
            return None
        walked = self._walked
        self._walk_from(walked, 0)
        found = walked.found.get(key)
        if found is None or 0 <= first_start <= found.begin * UNIT_SIZE:
            self._begin_there.add((key, first_start))
            return None
        return found._replace(grows=True)

    def _before_first_unit(
        self, key: QueueKey, first_start: int, first_commit_offset: int
    ) -> Reach | None:
        """Return what a log that was deleted in part has of a queue before the record of its first unit, None if nothing."""
        begin = max(self._log.min_offset, self._incarnations().of(key[0]))
        if first_commit_offset <= begin:
            return None
        found: dict[QueueKey, Reach] = {}
        with self._walking:
            self._walk(found, begin, first_commit_offset)
        reach, room = found.get(key), (first_commit_offset - begin) // RECORD_SIZE_MIN
        if reach is None or not 0 < first_start // UNIT_SIZE - reach.begin <= room:
            self._begin_there.add((key, first_start))
            return None
        return reach._replace(grows=True)

    def _has_lost_all(self, topic: str, queue_id: int) -> bool:
        """Whether a queue has a directory and no file: a new one gets its first file at once."""
        directory = self._directory / topic / str(queue_id)
        for rest_s in (NEW_QUEUE_S, 0.0):
            if not self._filesystem.exists(directory):
                return False
            if QueueFiles.whole(self._filesystem, directory).files:
                return False
            time.sleep(rest_s)
        return True

    def end(self) -> None:
        """End looks with StoreClosed, from here on."""
        self._is_ended = True

    def _check_goes_on(self) -> None:
        if self._is_ended:
            raise StoreClosed("the reader is closed")

    def _look(self) -> dict[QueueKey, Reach]:
        durable = self._written().durable_at_rest
        if durable is None or self._held_units(durable.dispatched_offset) == durable.unit_count:
            return {}
        found: dict[QueueKey, Reach] = {}
        self._walk(found, self._log.min_offset, self._log.end_offset)
        return found

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

    def _walk_from(self, walked: _Walked, commit_offset: int) -> None:
        """Read what was not read yet from a commit offset on."""
        with self._walking:
            begin, end = max(commit_offset, self._log.min_offset), self._log.end_offset
            if walked.end < 0:
                walked.begin = walked.end = end
            if begin < walked.begin:
                earlier: dict[QueueKey, Reach] = {}
                self._walk(earlier, begin, walked.begin)
                for key, reach in earlier.items():
                    later = walked.found.get(key)
                    walked.found[key] = later._replace(begin=reach.begin) if later else reach
                walked.begin = begin
            if walked.end < end:
                self._walk(walked.found, walked.end, end)
                walked.end = end

    def _walk(self, found: dict[QueueKey, Reach], begin_offset: int, end_offset: int) -> None:
        """Take in the records of a range, which lies after those that were found before."""
        incarnations = self._incarnations()
        builder = UnitBuilder(RANGE_ROWS_MAX)
        for run in record_runs(self._log, begin_offset, end_offset):
            self._check_goes_on()
            for built in builder.build(run.data, run.rows, len(run.rows), run.data_offset):
                if built.topic != incarnations.deleting_topic:
                    key = built.topic, built.queue_id
                    _reach_on(found, key, built, incarnations.of(built.topic))


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
