"""Consume queues: their units compared with the records of a range of the log, and messages that are not served.

``storage.view.queues.comparison`` compares ranges, which are added up in the order of the log;
``queue_findings`` then names what is wrong of each queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage import findings as kinds
from storage.files.mapped_file_queue import list_files
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.consume_entry import PREFILL_SIZE, SCHEDULE_TOPIC, UNIT_SIZE
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC, TIMER_TOPIC, file_name
from storage.view.log.commit_log import record_runs
from storage.view.queues.comparison import (
    UnitRange,
    differences,
)
from storage.view.queues.queue_files import UNITS_MAX
from storage.view.queues.queue_order import QueueOrder
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.record_queues import QueueRun
from storage.view.queues.units import Units

if TYPE_CHECKING:
    from storage.checks.store import CheckedStore
    from storage.view.queues.record_queues import QueueKey

NO_RECORD: Final = "no record of it is there"
_RECORD_KINDS: Final = {  # of queues that no consumer reads
    HALF_TOPIC: kinds.HALF_RECORD,
    HALF_REMOVAL_TOPIC: kinds.HALF_REMOVAL,
    TIMER_TOPIC: kinds.DELAYED_RECORD,
    SCHEDULE_TOPIC: kinds.DELAYED_RECORD,
}


class _WrongRange(NamedTuple):
    units: UnitRange
    kind: kinds.FindingKind


class _LostRecords(NamedTuple):
    """Queue offsets ``[begin, end)`` whose records are damaged together; the first one's place, and why."""

    begin: int
    end: int
    commit_offset: int
    size: int
    reason: str


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

    def __init__(self, store: CheckedStore, key: QueueKey, runs: list[QueueRun]) -> None:
        self.lost: list[_LostRecords] = []
        self.served_count = 0
        self._store = store
        self._queue = queue = store.queue(key)
        order = QueueOrder(None if runs else queue.begin, log_begin=store.walked.min_offset)
        for run in runs:
            order.take(run, store.walked.damage, queue.holds)
        begin = queue.begin
        if order.begin_offset is not None and queue.files:  # the first unit may be a wrong one
            begin = min(begin, max(order.begin_offset, queue.files[0].start_offset // UNIT_SIZE))
        records_end = max(order.next_offset or 0, begin)  # whether they have units or not
        self._without = [(begin, max(order.begin_offset or 0, begin)), *order.suspects()]
        without_count = sum(high - low for low, high in self._without)
        self.served_count = records_end - begin - without_count
        self._is_settled = store.is_settled and bool(queue.files)
        if self._is_settled:
            walked, sure_offset = store.walked, None
            if store.durable.trusted:
                lost_end = walked.end_offset if walked.end_offset > walked.records_end else 0
                sure_offset = max(store.durable.flushed_offset, lost_end)
            order.finish(store.walked.damage, queue.units, sure_offset=sure_offset)
        self._end = max(order.next_offset or 0, begin)
        self._without.append((records_end, self._end))
        extent = Extent(
            begin, max(queue.end, self._end), store.walked.min_offset, store.compared_end
        )
        since = max(store.topics.of(key[0]), order.since)
        self._rebuilt = RebuiltUnits(store.log, *key, queue, lambda: extent, since=lambda: since)

    def ranges(self, found: list[UnitRange]) -> Iterator[_WrongRange]:
        """Yield what is wrong of what was found, and of the units that no record accounts for.

        The records of those that are right are ``lost``.
        """
        for each in found:
            if not each.is_missing:
                yield from self._wrong(each.begin, each.end)
            elif 0 <= each.begin < self._end:
                yield _WrongRange(each, kinds.QUEUE_UNIT_MISSING)
        for low, high in self._without:
            yield from self._wrong(low, high, are_lost=True)
        if self._is_settled:
            for each in self._after(self._end):
                yield _WrongRange(each, kinds.QUEUE_END)

    def _held_and_made(self, begin: int, end: int) -> tuple[Units, Units]:
        run = self._rebuilt.rebuild(begin, end)
        made = run.units[begin - run.begin : end - run.begin]
        return self._queue.units(begin, len(made)), made

    def _wrong(self, begin: int, end: int, *, are_lost: bool = False) -> Iterator[_WrongRange]:
        if begin >= end:
            return
        held, made = self._held_and_made(begin, end)
        if are_lost:
            self._note_lost(begin, made)
        silent = made["size"] == 0
        made[silent] = held[silent]
        for each in differences(begin, held, made):
            kind = kinds.QUEUE_UNIT_MISSING if each.is_missing else kinds.QUEUE_UNIT
            yield _WrongRange(each, kind)

    def _after(self, queue_offset: int) -> Iterator[UnitRange]:
        """Yield what the files hold from a queue offset on."""
        end = self._queue.files[-1].end_offset // UNIT_SIZE
        for at in range(queue_offset, end, UNITS_MAX):
            units = self._queue.units(at, min(UNITS_MAX, end - at))
            written = np.flatnonzero((units["offset"] != 0) | (units["size"] != 0))
            if len(written):
                first, last = int(written[0]), int(written[-1])
                yield UnitRange(at + first, at + last + 1, False, int(units["offset"][first]))

    def _note_lost(self, begin: int, units: Units) -> None:
        """Note the records of units that lead to none, those of one damaged range together.

        An intact record that names another queue offset is served where its unit is.
        """
        for place in np.flatnonzero((units["size"] > 0) & (units["size"] != PREFILL_SIZE)).tolist():
            at, size, _ = units[place].item()
            reason = self._why_lost(at)
            if not reason and any(record_runs(self._store.log, at, at + size)):
                self.served_count += 1
                continue
            last = self.lost[-1] if self.lost else None
            if last is not None and (last.end, last.reason) == (begin + place, reason):
                self.lost[-1] = last._replace(end=last.end + 1)
            else:
                self.lost.append(_LostRecords(begin + place, begin + place + 1, at, size, reason))

    def _why_lost(self, commit_offset: int) -> str:
        """Return why the log is damaged at a commit offset; empty where it is not."""
        damage = self._store.walked.damage
        number = bisect_right(damage, commit_offset, key=attrgetter("begin_offset")) - 1
        if number >= 0 and commit_offset < damage[number].end_offset:
            return damage[number].reason
        return ""


def queue_files(store: CheckedStore) -> Iterator[Finding]:
    """Yield files of a wrong length."""
    file_size = store.sizes.consume_queue_file_size
    for _, _, directory in store.view.queue_directories():
        for file in list_files(store.filesystem, directory):
            if file.size != file_size:
                yield Finding(
                    severity=WARNING, kind=kinds.QUEUE_FILE_LENGTH,
                    file=str(file.path.relative_to(store.paths.root)),
                    message=f"has {file.size} bytes, not {file_size}; it is rebuilt from the log",
                )  # fmt: skip


def queue_findings(store: CheckedStore) -> Iterator[Finding]:
    """Yield the units that differ from what the log says, and the messages that cannot be served.

    Units of records that the checkpoint says are in the queues, or that a running writer serves, are damage;
    the next start writes the others without being asked.
    """
    check, promised = store.check, store.settled_offset
    if store.is_settled:
        promised = store.durable.dispatched_offset
    on_disk = (each[:2] for each in store.view.queue_directories())
    served_count = 0
    for key in sorted({*check.runs, *on_disk}):
        queue = _ComparedQueue(store, key, check.runs.get(key, []))
        directory = f"consumequeue/{key[0]}/{key[1]}"
        for each in _joined(sorted(queue.ranges(check.wrong.get(key, [])))):
            for kind, begin, end in _by_file(store, directory, each):
                is_promised = each.units.commit_offset < promised and kind is not kinds.QUEUE_END
                yield Finding(
                    severity=DAMAGE if is_promised else WARNING, kind=kind,
                    file=f"{directory}/{_file_of(store, begin)}",
                    message=_message(kind, begin, end), begin=begin, end=end,
                )  # fmt: skip
        for lost in queue.lost:
            yield Finding(
                severity=DAMAGE, kind=_RECORD_KINDS.get(key[0], kinds.QUEUE_RECORD),
                file=directory, message=_why(lost), begin=lost.begin, end=lost.end,
            )  # fmt: skip
        served_count += queue.served_count
    yield Finding(
        severity=NOTE, kind=kinds.STATE, file="consumequeue",
        message=f"{served_count} messages are served",
    )  # fmt: skip


def _why(lost: _LostRecords) -> str:
    place = f"commit offset {lost.commit_offset}, {lost.size} bytes"
    if lost.end - lost.begin == 1:
        return f"queue offset {lost.begin} ({place}): {lost.reason or NO_RECORD}"
    return f"queue offsets {lost.begin} to {lost.end - 1} (from {place} on): {lost.reason or NO_RECORD}"


def _file_of(store: CheckedStore, queue_offset: int) -> str:
    position = queue_offset * UNIT_SIZE
    return file_name(position - position % store.sizes.consume_queue_file_size)


def _by_file(
    store: CheckedStore, directory: str, wrong: _WrongRange
) -> Iterator[tuple[kinds.FindingKind, int, int]]:
    """Cut a range at the borders of files; units of a file that is not there are missing with it."""
    per_file = store.sizes.consume_queue_file_size // UNIT_SIZE
    begin = wrong.units.begin
    while begin < wrong.units.end:
        end = min(begin - begin % per_file + per_file, wrong.units.end)
        kind = wrong.kind
        if kind is kinds.QUEUE_UNIT_MISSING and not store.filesystem.exists(
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
