"""Consume queues: their units compared with the log, and what a pull of each message says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage import findings as kinds
from storage.files.mapped_file_queue import list_files
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.consume_entry import SCHEDULE_TOPIC, UNIT_SIZE
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC, TIMER_TOPIC, file_name
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.view.layout import queues_on_disk
from storage.view.log.commit_log import EVERYTHING
from storage.view.log.parts import record_runs
from storage.view.log.walk import RANGE_ROWS_MAX
from storage.view.queues.comparison import (
    UnitRange,
    differences,
    live_units,
    uncovered,
    wrong_units,
)
from storage.view.queues.placing import QUEUE_OFFSET_LIMIT
from storage.view.queues.pull import pull_queue
from storage.view.queues.queue_files import UNITS_MAX, QueueFiles
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.runs import QueueRun, runs_of
from storage.view.queues.tag_filter import MATCH_ALL
from storage.view.queues.units import UnitBuilder, Units, same_units

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore
    from storage.view.queues.record_queues import QueueKey

PULL_BYTES: Final = 16 << 20
PULL_RECORDS: Final = 65_536
_RECORD_KINDS: Final = {  # of queues that no consumer reads
    HALF_TOPIC: kinds.HALF_RECORD,
    HALF_REMOVAL_TOPIC: kinds.HALF_REMOVAL,
    TIMER_TOPIC: kinds.DELAYED_RECORD,
    SCHEDULE_TOPIC: kinds.DELAYED_RECORD,
}


class _WrongRange(NamedTuple):
    units: UnitRange
    kind: kinds.FindingKind


def _wrong_ranges(
    store: OfflineStore, disk: FileSystem, advance: Callable[[int], None]
) -> Iterator[tuple[QueueKey, list[_WrongRange]]]:
    """Yield each queue with the units on disk that are missing, or not what the records of the log say.

    What has to do with records from ``settled_offset`` on is left out: a running writer may be at it.
    """
    log, end_offset = store.reader.log, min(store.walked.end_offset, store.settled_offset)
    found: dict[QueueKey, list[UnitRange]] = {}
    runs: dict[QueueKey, list[QueueRun]] = {}
    queues: dict[QueueKey, QueueFiles] = {}

    def held(key: QueueKey) -> QueueFiles:
        if key not in queues:
            directory = store.paths.consume_queue / key[0] / str(key[1])
            queues[key] = QueueFiles.open(disk, directory, log.min_offset, end_offset)
        return queues[key]

    builder = UnitBuilder(RANGE_ROWS_MAX)
    for records in record_runs(log, log.min_offset, end_offset):
        for key, units, queue_offsets in live_units(builder, records, store.topics):
            found.setdefault(key, []).extend(wrong_units(held(key).units, units, queue_offsets))
            _add_runs(runs.setdefault(key, []), runs_of(key, units, queue_offsets))
        advance(records.end_offset - records.begin_offset)
    for key in sorted({*runs, *queues_on_disk(disk, store.paths.consume_queue)}):
        queue = _ComparedQueue(store, key, held(key), runs.get(key, []), end_offset)
        yield key, _joined(sorted(queue.ranges(found.get(key, []))))


def _add_runs(runs: list[QueueRun], following: Iterable[QueueRun]) -> None:
    """Add runs of a queue, with those made one that go on from each other."""
    for run in following:
        if runs and runs[-1].end == run.begin:
            last = runs.pop()
            run = last._replace(end=run.end, last_commit_offset=run.last_commit_offset)
        runs.append(run)


def _joined(ranges: Iterable[_WrongRange]) -> list[_WrongRange]:
    """Return ranges, given in order, with those of a kind that touch made one."""
    joined: list[_WrongRange] = []
    for units, kind in ranges:
        if joined and joined[-1].kind is kind and joined[-1].units.end >= units.begin:
            units = joined.pop().units._replace(end=units.end)
        joined.append(_WrongRange(units, kind))
    return joined


class _ComparedQueue:
    """Says which units of a queue are wrong, of those that differ from what a record of the log says.

    A broker's record may say a wrong queue offset, which no checksum covers; a topic may have been deleted and
    created again; and units of damaged records are right. So units that differ are rebuilt in memory.
    """

    def __init__(
        self,
        store: OfflineStore,
        key: QueueKey,
        queue: QueueFiles,
        runs: list[QueueRun],
        end_offset: int,
    ) -> None:
        self._queue = queue
        self._runs = [run for run in runs if 0 <= run.begin < QUEUE_OFFSET_LIMIT]
        self._is_settled = store.settled_offset == EVERYTHING
        begin = queue.begin
        if self._runs and queue.files:  # the first unit may be a wrong one
            begin = min(begin, max(self._runs[0].begin, queue.files[0].start_offset // UNIT_SIZE))
        self._records_end = self._find_records_end(begin)
        log, end = store.reader.log, max(queue.end, self._records_end)
        self._extent = Extent(begin, end, log.min_offset, end_offset)
        self._rebuilt = RebuiltUnits(
            log, *key, queue, lambda: self._extent, since=lambda: store.topics.since(key[0])
        )

    def _find_records_end(self, begin: int) -> int:
        """Return the queue offset after the last record, whether it has a unit or not.

        Of records after the last unit two have to agree, and there has to be room for what is missing before them.
        """
        records_end, last_offset = begin, 0
        end = self._queue.end if self._queue.files else sum(run.begin for run in self._runs[:1])
        for run in self._runs:
            is_sure = run.end - run.begin > 1
            room = (run.commit_offset - last_offset) // RECORD_SIZE_MIN if is_sure else 0
            if run.begin <= end + room:
                records_end = max(records_end, run.end)
                end = max(end, run.end)
            last_offset = run.last_commit_offset
        return records_end

    def ranges(self, found: list[UnitRange]) -> Iterator[_WrongRange]:
        """Yield what is wrong of what was found, and of the units that no record accounts for."""
        doubted = list(uncovered(self._runs, self._extent.begin, self._records_end))
        for each in found:
            if not each.is_missing:
                doubted.append((each.begin, each.end))
            elif 0 <= each.begin < self._records_end:
                yield _WrongRange(each, kinds.QUEUE_UNIT_MISSING)
        queue_end = self._records_end
        if self._is_settled and self._queue.files:
            queue_end = self._find_end()
            doubted.append((self._records_end, queue_end))
        for begin, end in doubted:
            for each in self._wrong(begin, end):
                kind = kinds.QUEUE_UNIT_MISSING if each.is_missing else kinds.QUEUE_UNIT
                yield _WrongRange(each, kind)
        if self._is_settled and self._queue.files:
            for each in self._after(queue_end):
                yield _WrongRange(each, kinds.QUEUE_END)

    def _find_end(self) -> int:
        """Return where the queue ends: after its last record, or units of damaged ones behind it."""
        begin, end = self._records_end, self._extent.end
        if begin >= end:
            return begin
        kept = np.flatnonzero(same_units(*self._held_and_made(begin, end)))
        return begin + int(kept[-1]) + 1 if len(kept) else begin

    def _held_and_made(self, begin: int, end: int) -> tuple[Units, Units]:
        run = self._rebuilt.rebuild(begin, end)
        held = self._queue.units(begin, end - begin)
        made = run.units[begin - run.begin : end - run.begin]
        return np.pad(held, (0, len(made) - len(held))), made

    def _wrong(self, begin: int, end: int) -> Iterator[UnitRange]:
        if begin < end:
            held, made = self._held_and_made(begin, end)
            silent = made["size"] == 0
            made[silent] = held[silent]
            yield from differences(begin, held, made)

    def _after(self, queue_offset: int) -> Iterator[UnitRange]:
        """Yield what the files hold from a queue offset on."""
        end = self._queue.files[-1].end_offset // UNIT_SIZE
        for at in range(queue_offset, end, UNITS_MAX):
            units = self._queue.units(at, min(UNITS_MAX, end - at))
            written = np.flatnonzero((units["offset"] != 0) | (units["size"] != 0))
            if len(written):
                first, last = int(written[0]), int(written[-1])
                yield UnitRange(at + first, at + last + 1, False, int(units["offset"][first]))


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
    store: OfflineStore, disk: FileSystem, advance: Callable[[int], None]
) -> Iterator[Finding]:
    """Yield the units that differ from what the log says.

    Those of records that the checkpoint says are in the queues, or that a running writer serves, are
    damage; the next start writes the others without being asked.
    """
    promised = store.durable.dispatched_offset if store.durable.trusted else 0
    if store.is_in_use:
        promised = store.settled_offset
    for (topic, queue_id), ranges in _wrong_ranges(store, disk, advance):
        directory = f"consumequeue/{topic}/{queue_id}"
        for each in ranges:
            for kind, begin, end in _by_file(store, disk, directory, each):
                is_promised = each.units.commit_offset < promised and kind is not kinds.QUEUE_END
                yield Finding(
                    severity=DAMAGE if is_promised else WARNING, kind=kind,
                    file=f"{directory}/{_file_of(store, begin)}",
                    message=_message(kind, begin, end), begin=begin, end=end,
                )  # fmt: skip


def _file_of(store: OfflineStore, queue_offset: int) -> str:
    position = queue_offset * UNIT_SIZE
    return file_name(position - position % store.config.consume_queue_file_size)


def _by_file(
    store: OfflineStore, disk: FileSystem, directory: str, wrong: _WrongRange
) -> Iterator[tuple[kinds.FindingKind, int, int]]:
    """Cut a range at the borders of files; units of a file that is not there are missing with it."""
    per_file = store.config.consume_queue_file_size // UNIT_SIZE
    begin = wrong.units.begin
    while begin < wrong.units.end:
        end = min(begin - begin % per_file + per_file, wrong.units.end)
        kind = wrong.kind
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
    """Pull every message of the queues; yield those that cannot be served."""
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
