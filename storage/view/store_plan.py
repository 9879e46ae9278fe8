"""What a read of one store has to do: ranges of its queues, cut into pieces that tasks read.

A piece is a range of the log, or of the units of one queue; both are fixed when planned, so that a task
meets no half-written record and reads the same when it runs again. Pieces are pickled. Queues are read
through their units where a read wants little of the log, and through the log otherwise. Records that are
in no queue yet are looked up here once and read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import PREFILL_SIZE, UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX, file_name
from storage.kernels.columns import COMMIT_OFFSET, QUEUE_OFFSET, SIZE
from storage.view.incarnations import Incarnations
from storage.view.log.boundary import record_starts
from storage.view.log.commit_log import record_runs
from storage.view.pieces import LogPiece, QueuePiece, StorePiece, Target
from storage.view.queues.checked_units import CheckedUnits
from storage.view.queues.queue_files import QueueFiles
from storage.view.queues.record_queues import QueueGrouper, QueueKey, is_queued
from storage.view.queues.time_search import QueueTimes, search

if TYPE_CHECKING:
    from storage.view.store_view import StoreView

SCAN_SHARE: Final = 0.25  # of the log's bytes: from there on the log is read as it lies
UNITS_AT_ONCE: Final = 1 << 16
NO_OFFSET: Final = (1 << 63) - 1
Int64s = npt.NDArray[np.int64]


class UnqueuedRecords(NamedTuple):
    """Those of one queue, in order."""

    queue_offsets: Int64s
    commit_offsets: Int64s
    sizes: Int64s


NO_RECORDS: Final = UnqueuedRecords(*np.empty((3, 0), np.int64))


@dataclass(frozen=True)
class Queue:
    """One queue as a plan sees it: those with units first, then the ``unqueued`` ones."""

    topic: str
    queue_id: int
    files: QueueFiles
    unqueued: UnqueuedRecords = NO_RECORDS
    checked: CheckedUnits | None = None

    @property
    def begin(self) -> int:
        """The oldest offset that can be read."""
        if self.files.begin == self.files.end and len(self.unqueued.queue_offsets):
            return int(self.unqueued.queue_offsets[0])
        return self.files.begin

    @property
    def end(self) -> int:
        """The offset after the newest."""
        offsets = self.unqueued.queue_offsets
        return int(offsets[-1]) + 1 if len(offsets) else self.files.end

    def place(self, queue_offset: int) -> tuple[int, int]:
        """Return commit offset and size of the record at a queue offset in ``[begin, end)``.

        They are those of the record itself where units are ``checked``; zeros where its unit is lost.
        """
        if queue_offset >= self.files.end:
            at = int(np.searchsorted(self.unqueued.queue_offsets, queue_offset))
            return int(self.unqueued.commit_offsets[at]), int(self.unqueued.sizes[at])
        if self.checked is not None:
            return self.checked.place(queue_offset)
        return self.files.unit(queue_offset)[:2]

    def next_there(self, queue_offset: int) -> int:
        """Return the first queue offset from this one on whose unit is not lost with its file."""
        if queue_offset >= self.files.end:
            return queue_offset
        return min(self.files.next_there(queue_offset), self.files.end)

    def last_there(self, queue_offset: int) -> int:
        """Return the last queue offset up to this one whose unit is not lost with its file."""
        return (
            queue_offset if queue_offset >= self.files.end else self.files.last_there(queue_offset)
        )

    def sizes(self, begin: int, end: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the sizes of the records of ``[begin, end)``, some at a time; 0 where there is none."""
        units_end = max(begin, min(end, self.files.end))
        for at in range(begin, units_end, UNITS_AT_ONCE):
            sizes = self.files.units(at, min(UNITS_AT_ONCE, units_end - at))["size"]
            yield np.where(sizes == PREFILL_SIZE, 0, sizes).astype(np.int64)
        low, high = np.searchsorted(self.unqueued.queue_offsets, (units_end, end)).tolist()
        if low < high:
            yield self.unqueued.sizes[low:high]

    def bytes_of(self, begin: int, end: int) -> int:
        """Estimate the bytes of the records of ``[begin, end)``, by samples of those with units."""
        units_end = max(begin, min(end, self.files.end))
        low, high = np.searchsorted(self.unqueued.queue_offsets, (units_end, end)).tolist()
        in_units = self.files.mean_size(begin, units_end) * (units_end - begin)
        return int(in_units) + int(self.unqueued.sizes[low:high].sum())


@dataclass(frozen=True)
class PlannedRange:
    """Queue offsets ``[begin, end)`` of one queue."""

    queue: Queue
    begin: int
    end: int

    @property
    def commit_range(self) -> tuple[int, int]:
        """Commit offsets from the first record to the end of the last one; zeros if all units are lost."""
        first, last = self.queue.place(self.begin), self.queue.place(self.end - 1)
        if not first[1]:
            at = self.queue.next_there(self.begin)
            first = self.queue.place(at) if at < self.end else (0, 0)
        if not last[1]:
            at = self.queue.last_there(self.end - 1)
            last = self.queue.place(at) if at >= self.begin else (0, 0)
        end = sum(last)
        return (first[0], end) if first[0] < end else (0, 0)


class StorePlan:
    """One store as it is now; of its queues those of topics that are wanted, all without ``wants``."""

    def __init__(self, store: StoreView, wants: Callable[[str], bool] | None = None) -> None:
        self.store = store
        self._wants = wants
        self.bounds = store.bounds
        self.incarnations = store.incarnations()

    @property
    def queued_range(self) -> tuple[int, int]:
        """Commit offsets of the part of the log that queues cover."""
        return self.bounds.min_offset, min(self.bounds.end_offset, self.bounds.queued_offset)

    @cached_property
    def queues(self) -> dict[QueueKey, Queue]:
        """Every queue that has a directory or a record that is not queued yet."""
        incarnations = self.incarnations or Incarnations()
        files = self.store.open_queues(*self.queued_range, self._wants)
        looked_up_from = self.bounds.queued_offset
        if self._wants is None and self._lost_ends(files):  # all records are looked up in the log
            looked_up_from = self.bounds.min_offset
            files = {key: files[key] for key in files if key[0].startswith(LIGHT_QUEUE_PREFIX)}
        unqueued = (
            unqueued_records(self.store, incarnations, looked_up_from)
            if looked_up_from < self.bounds.end_offset
            else {}
        )
        found = {}
        for key in dict.fromkeys((*files, *unqueued)):
            held = files.get(key)
            is_checked = not self.store.location.is_url  # where each look is a request of its own
            found[key] = Queue(
                *key,
                held or self.store.queue(*key),
                unqueued.get(key, NO_RECORDS),
                self._checked_units(key, held) if held is not None and is_checked else None,
            )
        return {key: queue for key, queue in found.items() if key[0] != incarnations.deleting_topic}

    def _lost_ends(self, files: dict[QueueKey, QueueFiles]) -> bool:
        """Whether files hold fewer units than they did when all that may be read was durable in them."""
        durable = self.store.checkpoint.durable
        is_stated = durable.trusted and durable.dispatched_offset == self.bounds.queued_offset
        if self.store.location.is_url or not is_stated:
            return False
        held = (
            queue.end - queue.files[0].start_offset // UNIT_SIZE
            for queue in files.values()
            if queue.files
        )
        return sum(held) != durable.unit_count

    def _checked_units(self, key: QueueKey, files: QueueFiles) -> CheckedUnits:
        since = (self.incarnations or Incarnations()).of(key[0])
        return CheckedUnits(self.store.log, files, *key, bounds=self.queued_range, since=since)

    def checked_units(self, queue: Queue) -> CheckedUnits:
        """Return the units of a queue, to read many at a time: of a store behind a URL too."""
        return queue.checked or self._checked_units((queue.topic, queue.queue_id), queue.files)

    @cached_property
    def topics(self) -> set[str]:
        """Topics with a queue, and those that the topic table names."""
        return {topic for topic, _ in self.queues} | self.store.topic_names()

    def timestamp(self, queue: Queue, queue_offset: int) -> int:
        """Return when the record at a queue offset was stored, in Unix milliseconds.

        The next readable one's time if it has none, 0 if there is no such.
        """
        time_ms, _ = self.times(queue)(queue_offset, queue.end)
        return max(time_ms, 0)

    def times(self, queue: Queue) -> QueueTimes:
        """Return the store times of a queue's records."""
        is_light = queue.topic.startswith(LIGHT_QUEUE_PREFIX)
        return QueueTimes(self.store.log, queue.place, queue.files, is_light=is_light)

    def offset_at_time(self, queue: Queue, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time, None if all are older."""
        found = search(queue.begin, queue.end, timestamp_ms, self.times(queue))
        return found if found < queue.end else None

    def range_pieces(
        self, ranges: Sequence[PlannedRange], piece_bytes: int
    ) -> Iterator[StorePiece]:
        """Cut queue ranges into pieces, through the log or through the units, whichever is less."""
        light = [r for r in ranges if r.queue.topic.startswith(LIGHT_QUEUE_PREFIX)]
        plain = [r for r in ranges if not r.queue.topic.startswith(LIGHT_QUEUE_PREFIX)]
        yield from self._unit_pieces(light, piece_bytes)
        if not plain:
            return
        targets = [Target(r.queue.topic, r.queue.queue_id, *r.commit_range) for r in plain]
        low, high = min(t.begin for t in targets), max(t.end for t in targets)
        wanted = sum(r.queue.bytes_of(r.begin, r.end) for r in plain)
        if wanted >= SCAN_SHARE * (high - low):
            yield from self.log_pieces(low, high, piece_bytes, targets, with_lost=True)
            return
        yield from self.queue_pieces(plain, piece_bytes)

    def queue_pieces(
        self, ranges: Sequence[PlannedRange], piece_bytes: int
    ) -> Iterator[StorePiece]:
        """Cut queue ranges into pieces, through the units, and through the log where there are none yet."""
        yield from self._unit_pieces(ranges, piece_bytes)
        targets = [Target(r.queue.topic, r.queue.queue_id, *r.commit_range) for r in ranges]
        firsts = [
            min(r.queue.unqueued.commit_offsets[:1].tolist(), default=NO_OFFSET) for r in ranges
        ]
        unqueued = [
            replace(target, begin=max(target.begin, first))
            for target, first in zip(targets, firsts, strict=True)
            if target.end > first
        ]
        if unqueued:
            begin, end = min(t.begin for t in unqueued), max(t.end for t in unqueued)
            yield from self.log_pieces(begin, end, piece_bytes, unqueued, with_lost=True)

    def _unit_pieces(
        self, ranges: Sequence[PlannedRange], piece_bytes: int
    ) -> Iterator[StorePiece]:
        for r in ranges:
            end = min(r.end, r.queue.files.end)
            mean = max(r.queue.files.mean_size(r.begin, end), 1.0)
            step = max(1, int(piece_bytes / mean))
            for begin in range(r.begin, end, step):
                until = min(begin + step, end)
                yield QueuePiece(
                    self.store, r.queue.topic, r.queue.queue_id, begin, until, self.queued_range,
                    int((until - begin) * mean),
                )  # fmt: skip

    def log_pieces(
        self,
        begin: int,
        end: int,
        piece_bytes: int,
        targets: Iterable[Target] | None,
        *,
        with_lost: bool = False,
    ) -> Iterator[LogPiece]:
        """Cut commit offsets ``[begin, end)`` at records, never across a file.

        Ranges of lost files between others are left out, or pieces ``with_lost``.
        """
        targets = None if targets is None else tuple(targets)
        if with_lost:
            yield from self._lost_pieces(begin, end, piece_bytes, targets)
        for file in self.store.log.entries:
            low, high = max(file.start_offset, begin), min(file.end_offset, end)
            if low >= high:
                continue
            count = max(1, round((high - low) / piece_bytes))
            for first, last in pairwise(record_starts(self.store.log, file, low, high, count)):
                if mine := _within(targets, first, last):
                    yield LogPiece(self.store, file, first, last, mine[0], self.queued_range)

    def _lost_pieces(
        self, begin: int, end: int, piece_bytes: int, targets: tuple[Target, ...] | None
    ) -> Iterator[LogPiece]:
        """Cut lost ranges anywhere where their records are named by their units, else not at all."""
        for lost_begin, lost_end in self.store.lost_log_ranges():
            low, high = max(lost_begin, begin), min(lost_end, end)
            step = piece_bytes if targets is not None else max(high - low, 1)
            for first in range(low, high, step):
                last = min(first + step, high)
                if mine := _within(targets, first, last):
                    path = self.store.paths.commit_log / file_name(first)
                    yield LogPiece(
                        self.store, FileEntry(first, last - first, path), first, last, mine[0],
                        self.queued_range, is_lost=True,
                    )  # fmt: skip


def _within(
    targets: tuple[Target, ...] | None, begin: int, end: int
) -> tuple[tuple[Target, ...] | None] | None:
    """Return the targets that a range has to do with, in a tuple of its own; None if it has with none."""
    if targets is None:
        return (None,)
    mine = tuple(t for t in targets if t.begin < end and t.end > begin)
    return (mine,) if mine else None


def unqueued_records(
    store: StoreView, incarnations: Incarnations, begin_offset: int
) -> dict[QueueKey, UnqueuedRecords]:
    """Walk the log from ``begin_offset`` to where it may be read; return what there is, by queue.

    Records of a topic that were stored before it was deleted are in no queue.
    """
    parts: dict[QueueKey, list[Int64s]] = {}
    grouper = QueueGrouper()
    for run in record_runs(store.log, begin_offset, store.bounds.end_offset):
        queued = is_queued(run.rows)
        for group, key in enumerate(grouper.group(run.data, run.rows)):
            counted = queued & (run.rows[:, COMMIT_OFFSET] >= incarnations.of(key[0]))
            mine = counted & (grouper.group_of[: len(run.rows)] == group)
            if key[0] != incarnations.deleting_topic and np.any(mine):
                part = run.rows[mine][:, (QUEUE_OFFSET, COMMIT_OFFSET, SIZE)].T
                parts.setdefault(key, []).append(part)
    return {key: UnqueuedRecords(*np.concatenate(found, axis=1)) for key, found in parts.items()}
