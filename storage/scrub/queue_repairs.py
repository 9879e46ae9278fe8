"""What the scrub finds wrong with the queues of a running writer, made right from the log: units, and files.

Files that somebody removes are noticed by their names. The writer goes on in a removed file as long as it
has it open, and readers that have it mapped see all of it; who opens the queue anew finds neither. So the
names of all files are looked at again and again, a removed file is made again as a hole, which takes what
is dispatched from then on, and the units before that are written from one walk of the log for all of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.consume_entry import UNIT_SIZE
from storage.queues.unit_repair import correct_units, repair_units
from storage.view.log.files import ListedLog
from storage.view.log.parts import record_runs
from storage.view.log.walk import RANGE_ROWS_MAX
from storage.view.queues.runs import consecutive
from storage.view.queues.units import UnitBuilder, as_units, prefill_units
from storage.view.settings import load_settings

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.queues.consume_queue import ConsumeQueue
    from storage.queues.dispatch import DispatchWorker
    from storage.queues.queue_table import QueueTable
    from storage.scrub.units import WrongUnits
    from storage.view.layout import StorePaths
    from storage.view.queues.record_queues import QueueKey
    from storage.view.queues.units import QueueUnits

FILES_AT_ONCE: Final = 64  # that are made while dispatch waits


class LostFile(NamedTuple):
    """A queue's file that should be there, of queue offsets ``[begin, end)``; ``path`` is its own below the store's."""

    key: QueueKey
    begin: int
    end: int
    path: str


class MadeFile(NamedTuple):
    """A file that was made again, and the queue that has it; one of a topic that is deleted meanwhile takes no unit."""

    file: LostFile
    queue: ConsumeQueue


class QueueRepairs:
    """Makes units and files of queues right while ``dispatch`` goes on.

    ``min_offset`` says where the log begins; ``made_again`` is called when files were made again, and readers are to look.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        paths: StorePaths,
        queues: QueueTable,
        dispatch: DispatchWorker,
        *,
        min_offset: Callable[[], int],
        made_again: Callable[[], None],
    ) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._queues = queues
        self._dispatch = dispatch
        self._min_offset = min_offset
        self._made_again = made_again

    def write_again(self, wrong: WrongUnits) -> int:
        """Write units again that are not what the log says; return how many were not. Raises OSError, StoreFull."""
        settings = load_settings(self._filesystem, self._paths)
        return repair_units(
            ListedLog(self._filesystem, self._paths.commit_log),
            self._queues,
            *wrong,
            commit_range=(self._min_offset(), self._dispatch.position),
            since=settings.deleted_topics.get(wrong.topic, 0),
        )

    def lost_files(self) -> list[LostFile]:
        """Return the files that are lost now."""
        return [self._lost(*each) for each in self._queues.lost_files()]

    def _lost(self, key: QueueKey, path: Path) -> LostFile:
        begin = int(path.name) // UNIT_SIZE
        name = f"consumequeue/{key[0]}/{key[1]}/{path.name}"
        return LostFile(key, begin, begin + self._queues.units_per_file, name)

    def make_again(self, lost: list[LostFile]) -> list[LostFile]:
        """Make files again; return those that were lost still, and are whole now.

        Durable with the next checkpoint. Raises OSError, StoreFull, StoreBusy; what was made by then is lost still.
        """
        made: list[MadeFile] = []
        end_offset = 0

        def make_files(some: Sequence[LostFile]) -> None:
            for each in some:
                queue = self._queues.make_file_again(each.key, each.begin * UNIT_SIZE)
                if queue is not None:
                    made.append(MadeFile(each, queue))

        for begin in range(0, len(lost), FILES_AT_ONCE):
            some = lost[begin : begin + FILES_AT_ONCE]
            end_offset = self._dispatch.between(partial(make_files, some))
        if made:
            self._write_units(made, end_offset)
            for file, queue in made:
                queue.note_whole(file.begin * UNIT_SIZE)
            self._made_again()
        return [each.file for each in made]

    def _write_units(self, made: list[MadeFile], end_offset: int) -> None:
        """Write what the log has of files, of records before a commit offset."""
        of_queue: defaultdict[QueueKey, list[MadeFile]] = defaultdict(list)
        for each in made:
            of_queue[each.file.key].append(each)
        begin_offset = self._min_offset()
        for built in self._records(begin_offset, end_offset):
            files = of_queue.get((built.topic, built.queue_id))
            if files is not None and len(built.queue_offsets):
                _write(files, built)
        if begin_offset > 0:
            for file, queue in made:
                _fill_front(queue, file, begin_offset)

    def _records(self, begin_offset: int, end_offset: int) -> Iterator[QueueUnits]:
        """Yield the units of what the log has in a range, queue by queue for some records at a time."""
        builder = UnitBuilder(RANGE_ROWS_MAX)
        deleted = load_settings(self._filesystem, self._paths).deleted_topics
        log = ListedLog(self._filesystem, self._paths.commit_log)
        for run in record_runs(log, begin_offset, end_offset):
            for built in builder.build(run.data, run.rows, len(run.rows), run.data_offset):
                yield _since(built, deleted.get(built.topic, 0))


def _write(files: list[MadeFile], built: QueueUnits) -> None:
    units, queue_offsets = as_units(built.units), built.queue_offsets
    for begin, end in consecutive(queue_offsets):
        first = int(queue_offsets[begin])
        for file, queue in files:
            low, high = max(first, file.begin), min(first + end - begin, file.end)
            if low < high:
                correct_units(queue, low, units[begin + low - first : begin + high - first])


def _fill_front(queue: ConsumeQueue, file: LostFile, begin_offset: int) -> None:
    """Make pre-fill units of a file's first ones if they stand where a queue has units of deleted records alone.

    ``begin_offset`` is where the log begins. A file is filled after those before it.
    """
    if queue.first_offset < file.begin:
        before = queue.unit(file.begin - 1)
        if before.size <= 0 or before.commit_offset >= begin_offset:
            return
    count = min(queue.next_offset, file.end) - file.begin
    if count <= 0:
        return
    written = np.flatnonzero(as_units(queue.read(file.begin, count))["size"])
    missing = int(written[0]) if len(written) else count
    if missing:
        queue.overwrite(file.begin, prefill_units(missing).tobytes())


def _since(built: QueueUnits, commit_offset: int) -> QueueUnits:
    """Return those of a queue's units whose records are not of an earlier topic of that name."""
    if not commit_offset:
        return built
    units = as_units(built.units)
    kept = units["offset"] >= commit_offset
    return built._replace(units=units[kept].view(np.uint8), queue_offsets=built.queue_offsets[kept])
