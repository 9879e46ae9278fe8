"""Consume queues: what recovery corrected of them in memory, and what a pull of each message says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage import findings as kinds
from storage.files.mapped_file_queue import list_files
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.consume_entry import SCHEDULE_TOPIC, UNIT_SIZE
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC, TIMER_TOPIC, file_name
from storage.view.layout import queues_on_disk
from storage.view.log.commit_log import EVERYTHING
from storage.view.queues.pull import pull_queue
from storage.view.queues.tag_filter import MATCH_ALL
from storage.view.queues.units import Units, as_units

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore
    from storage.queues.consume_queue import ConsumeQueue

PULL_BYTES: Final = 16 << 20
PULL_RECORDS: Final = 65_536
_RECORD_KINDS: Final = {  # of queues that no consumer reads
    HALF_TOPIC: kinds.HALF_RECORD,
    HALF_REMOVAL_TOPIC: kinds.HALF_REMOVAL,
    TIMER_TOPIC: kinds.DELAYED_RECORD,
    SCHEDULE_TOPIC: kinds.DELAYED_RECORD,
}
Longs = npt.NDArray[np.int64]


@dataclass(slots=True)
class UnitRange:
    """Queue offsets ``[begin, end)`` whose units are all missing, or all wrong in the same way.

    ``commit_offset`` is the least of those that they should have.
    """

    begin: int
    end: int
    kind: kinds.FindingKind
    commit_offset: int


class QueueDifferences:
    """Collects what recovery changes of the queues; a watch of ``recover``.

    What has to do with records from ``settled_offset`` on is left out: a running writer may be at it.
    """

    def __init__(self, settled_offset: int, advance: Callable[[int], None]) -> None:
        self.ranges: dict[tuple[str, int], list[UnitRange]] = {}
        self._settled_offset = settled_offset
        self._advance = advance
        self._walked_offset = -1

    def walked(self, commit_offset: int) -> None:
        """Pass on how much of the log was read since the last call."""
        if self._walked_offset >= 0:
            self._advance(commit_offset - self._walked_offset)
        self._walked_offset = commit_offset

    def corrected(
        self, queue: ConsumeQueue, queue_offset: int, held: Units, wanted: Units, wrong: Longs
    ) -> None:
        """Note units that differ."""
        wrong = wrong[wanted["offset"][wrong] < self._settled_offset]
        if not len(wrong):
            return
        missing = held["size"][wrong] == 0
        breaks = np.flatnonzero((np.diff(wrong) != 1) | (np.diff(missing) != 0)) + 1
        ranges = self.ranges.setdefault((queue.topic, queue.queue_id), [])
        for first, last in zip([0, *breaks], [*(breaks - 1), len(wrong) - 1], strict=True):
            kind = kinds.QUEUE_UNIT_MISSING if missing[first] else kinds.QUEUE_UNIT
            begin, end = queue_offset + int(wrong[first]), queue_offset + int(wrong[last]) + 1
            commit_offset = int(wanted["offset"][wrong[first]])
            if ranges and ranges[-1].end == begin and ranges[-1].kind is kind:
                ranges[-1].end = end
            else:
                ranges.append(UnitRange(begin, end, kind, commit_offset))

    def ended(self, queue: ConsumeQueue, queue_offset: int) -> None:
        """Note units after a queue's end, of the file that it ends in and those after it."""
        if self._settled_offset < EVERYTHING:
            return
        for start in queue.file_starts:
            begin = max(start // UNIT_SIZE, queue_offset)
            end = (start + queue.data_size(start) + UNIT_SIZE - 1) // UNIT_SIZE
            count = min(end - start // UNIT_SIZE, queue.units_per_file) + start // UNIT_SIZE - begin
            if count > 0:
                units = as_units(queue.read(begin, count))
                found = np.flatnonzero((units["size"] != 0) | (units["offset"] != 0))
                if len(found):
                    first, end = begin + int(found[0]), begin + int(found[-1]) + 1
                    self.ranges.setdefault((queue.topic, queue.queue_id), []).append(
                        UnitRange(first, end, kinds.QUEUE_END, int(units["offset"][found[0]]))
                    )


def queue_files(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield files of a wrong length."""
    file_size = store.config.consume_queue_file_size
    for topic, queue_id in sorted(queues_on_disk(disk, store.paths.consume_queue)):
        for file in list_files(disk, store.paths.consume_queue / topic / str(queue_id)):
            if file.size != file_size:
                yield Finding(
                    severity=WARNING, kind=kinds.QUEUE_FILE_LENGTH,
                    file=str(file.path.relative_to(store.paths.root)),
                    message=f"has {file.size} bytes, not {file_size}; it is rebuilt from the log",
                )  # fmt: skip


def queue_units(
    store: OfflineStore, disk: FileSystem, differences: QueueDifferences
) -> Iterator[Finding]:
    """Yield the units that differ from what the log says.

    Those of records that the checkpoint says are in the queues, or that a running writer serves, are
    damage; the next start writes the others without being asked.
    """
    promised = store.durable.dispatched_offset if store.durable.trusted else 0
    if store.is_in_use:
        promised = store.settled_offset
    for (topic, queue_id), ranges in sorted(differences.ranges.items()):
        directory = f"consumequeue/{topic}/{queue_id}"
        for each in ranges:
            for kind, begin, end in _by_file(store, disk, directory, each):
                is_promised = each.commit_offset < promised and kind is not kinds.QUEUE_END
                yield Finding(
                    severity=DAMAGE if is_promised else WARNING, kind=kind,
                    file=f"{directory}/{_file_of(store, begin)}",
                    message=_message(kind, begin, end), begin=begin, end=end,
                )  # fmt: skip


def _file_of(store: OfflineStore, queue_offset: int) -> str:
    position = queue_offset * UNIT_SIZE
    return file_name(position - position % store.config.consume_queue_file_size)


def _by_file(
    store: OfflineStore, disk: FileSystem, directory: str, units: UnitRange
) -> Iterator[tuple[kinds.FindingKind, int, int]]:
    """Cut a range at the borders of files; units of a file that is not there are missing with it."""
    per_file = store.config.consume_queue_file_size // UNIT_SIZE
    begin = units.begin
    while begin < units.end:
        end = min(begin - begin % per_file + per_file, units.end)
        kind = units.kind
        if kind is kinds.QUEUE_UNIT_MISSING and not disk.exists(
            store.paths.root / directory / _file_of(store, begin)
        ):
            kind = kinds.QUEUE_FILE_MISSING
        yield kind, begin, end
        begin = end


def _message(kind: kinds.FindingKind, begin: int, end: int) -> str:
    if end - begin == 1:
        units, verb, rest = f"the unit of queue offset {begin}", "is", "its record in the log says"
    else:
        units = f"{end - begin} units of queue offsets {begin} to {end - 1}"
        verb, rest = "are", "their records in the log say"
    if kind is kinds.QUEUE_FILE_MISSING:
        return f"is missing, with {units}"
    if kind is kinds.QUEUE_UNIT_MISSING:
        return f"{units} {verb} missing, though the log has what they point to"
    if kind is kinds.QUEUE_END:
        return f"{units} {verb} after the queue's last record"
    return f"{units} {verb} not what {rest}"


def queue_records(store: OfflineStore, advance: Callable[[int], None]) -> Iterator[Finding]:
    """Pull every message of the corrected queues; yield those that cannot be served."""
    log = store.reader.log
    messages = 0
    for topic, queue_id in store.reader.queues_on_disk():
        queue = store.reader.queue_view(topic, queue_id)
        high = queue.max_offset(log.visible_offset)
        at = queue.min_offset(log.min_offset, high)
        while at < high:
            result = pull_queue(
                log, queue, topic=topic, queue_id=queue_id, queue_offset=at,
                max_messages=PULL_RECORDS, max_bytes=PULL_BYTES, tag_filter=MATCH_ALL,
            )  # fmt: skip
            messages += result.record_count
            advance(sum(len(each) for each in result.slices))
            for damage in result.damaged:
                if damage.commit_offset < store.settled_offset:
                    yield Finding(
                        severity=DAMAGE, kind=_RECORD_KINDS.get(topic, kinds.QUEUE_RECORD),
                        file=f"consumequeue/{topic}/{queue_id}",
                        message=(
                            f"queue offset {damage.queue_offset} (commit offset"
                            f" {damage.commit_offset}, {damage.size} bytes): {damage.reason}"
                        ),
                        begin=damage.queue_offset, end=damage.queue_offset + 1,
                    )  # fmt: skip
            if result.next_offset <= at:
                break
            at = result.next_offset
    yield Finding(
        severity=NOTE,
        kind=kinds.STATE,
        file="consumequeue",
        message=f"{messages} messages are served",
    )
