"""What a read of messages has to do: queue ranges resolved, and cut into pieces for tasks.

A piece is a range of the log, or of the units of one queue; both are fixed when planned, so that a task
meets no half-written record and reads the same when it runs again. Queues are read through their units
where a read wants little of the log, and through the log otherwise. What the queues do not cover yet,
the tail, is walked here once and read from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Final, Protocol, TypeVar

import numpy as np

from pipeline.source.options import EARLIEST, LATEST, Point, ReadOptions
from pipeline.source.points import QueueBounds, resolve_point
from pipeline.source.selecting import select
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels.columns import ByteArray
from storage.view.incarnations import Incarnations
from storage.view.log.boundary import record_starts
from storage.view.log.files import FileEntry
from storage.view.queue_files import QueueFiles
from storage.view.store_view import StoreView
from storage.view.time_search import QueueTimes, search

SCAN_SHARE: Final = 0.25  # of the log's bytes: from there on the log is read as it lies
QueueKey = tuple[str, int]


@dataclass(frozen=True)
class Target:
    """Records of one queue that a log piece keeps: those at commit offsets ``[begin, end)``."""

    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(frozen=True)
class LogPiece:
    """Commit offsets ``[begin, end)`` of one log file; every record, or those of the targets."""

    store: StoreView
    file: FileEntry
    begin: int
    end: int
    targets: tuple[Target, ...] | None = None
    bounds: tuple[int, int] = (0, 0)

    @property
    def cost(self) -> int:
        """Bytes to read."""
        return self.end - self.begin

    @property
    def file_start(self) -> int:
        """Commit offset of the first byte of the file."""
        return self.file.start_offset

    def data(self) -> ByteArray:
        """Return the array that the piece lies in, at the positions of its file."""
        start = self.file.start_offset
        return self.store.map(self.file.path, self.begin - start, self.end - start)


@dataclass(frozen=True)
class QueuePiece:
    """Queue offsets ``[begin, end)`` of one queue, read through its units."""

    store: StoreView
    topic: str
    queue_id: int
    begin: int
    end: int
    bounds: tuple[int, int]
    cost: int


@dataclass(frozen=True)
class RemotePiece:
    """Queue offsets ``[begin, end)`` of one queue of the store that a reader service serves."""

    store: str
    topic: str
    queue_id: int
    begin: int
    end: int
    cost: int


Piece = LogPiece | QueuePiece | RemotePiece


class Costed(Protocol):
    """Work of which is known how much it is."""

    @property
    def cost(self) -> int:
        """About how many bytes are read."""
        ...


Work = TypeVar("Work", bound=Costed)


@dataclass
class Tail:
    """Records of one queue that its units do not cover yet, in order."""

    queue_offsets: list[int] = field(default_factory=list)
    commit_offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Queue:
    """One queue as a plan sees it: offsets ``[begin, units_end)`` have units, the tail follows."""

    topic: str
    queue_id: int
    files: QueueFiles
    tail: Tail

    @property
    def begin(self) -> int:
        """The oldest offset that can be read."""
        if self.files.begin == self.files.end and self.tail.queue_offsets:
            return self.tail.queue_offsets[0]
        return self.files.begin

    @property
    def end(self) -> int:
        """The offset after the newest."""
        return self.tail.queue_offsets[-1] + 1 if self.tail.queue_offsets else self.files.end

    def place(self, queue_offset: int) -> tuple[int, int]:
        """Return commit offset and size of the record at a queue offset in ``[begin, end)``."""
        if queue_offset < self.files.end:
            offset, size, _ = self.files.unit(queue_offset)
            return offset, size
        at = int(np.searchsorted(self.tail.queue_offsets, queue_offset))
        return self.tail.commit_offsets[at], self.tail.sizes[at]

    def next_file_offset(self, queue_offset: int) -> int | None:
        """Return the first queue offset of the next file of units, None without one."""
        starts = (file.start_offset // UNIT_SIZE for file in self.files.files)
        return next((start for start in starts if start > queue_offset), None)


@dataclass(frozen=True)
class QueueRange:
    """Queue offsets ``[begin, end)`` of one queue."""

    queue: Queue
    begin: int
    end: int

    @property
    def commit_range(self) -> tuple[int, int]:
        """Commit offsets from the first record to behind the last one."""
        last, size = self.queue.place(self.end - 1)
        return self.queue.place(self.begin)[0], last + size


class StorePlan:
    """One store as it is now."""

    def __init__(self, store: StoreView) -> None:
        self.store = store
        self.bounds = store.bounds
        self.incarnations = store.incarnations()

    @cached_property
    def tails(self) -> dict[QueueKey, Tail]:
        """What lies behind the part of the log that queues cover, by queue."""
        if self.bounds.queued_offset >= self.bounds.end_offset:
            return {}
        from pipeline.source.tail import read_tails

        return read_tails(self.store, self.incarnations or Incarnations())

    @cached_property
    def queues(self) -> dict[QueueKey, Queue]:
        """Every queue that has a directory or a record in the tail."""
        min_offset, end_offset, queued_offset = self.bounds
        found: dict[QueueKey, Queue] = {}
        opened = self.store.open_queues(min_offset, min(end_offset, queued_offset))
        for (topic, queue_id), files in opened.items():
            if self.incarnations is not None and topic == self.incarnations.deleting_topic:
                continue
            tail = self.tails.get((topic, queue_id), Tail())
            found[topic, queue_id] = Queue(topic, queue_id, files, tail)
        for (topic, queue_id), tail in self.tails.items():
            if (topic, queue_id) not in found:
                found[topic, queue_id] = Queue(
                    topic, queue_id, QueueFiles(self.store.filesystem, (), 0, 0), tail
                )
        return found

    @cached_property
    def topics(self) -> set[str]:
        """Topics with a queue, and those that the topic table names."""
        return {topic for topic, _ in self.queues} | self.store.topic_names()

    def selected(self, options: ReadOptions) -> list[Queue]:
        """Return the chosen queues; InvalidOption for a topic or queue that does not exist."""
        return select(self.queues, self.topics, options.selection, str(self.store))

    def timestamp(self, queue: Queue, queue_offset: int) -> int:
        """Return when the record at a queue offset was stored, in Unix milliseconds.

        The next readable one's time if it has none, 0 if there is no such.
        """
        time_ms, _ = QueueTimes(self.store.log, queue)(queue_offset, queue.end)
        return max(time_ms, 0)

    def offset_at_time(self, queue: Queue, timestamp_ms: int) -> int | None:
        """Return the first offset stored at or after a time, None if all are older."""
        times = QueueTimes(self.store.log, queue)
        found = search(queue.begin, queue.end, timestamp_ms, times)
        return found if found < queue.end else None

    def resolve(self, queue: Queue, point: Point, options: ReadOptions, *, start: bool) -> int:
        """Return the queue offset that a point means for one queue."""
        bounds = QueueBounds(queue.topic, queue.queue_id, queue.begin, queue.end)
        return resolve_point(
            bounds, point, options, lambda time: self.offset_at_time(queue, time), start=start
        )

    def ranges(self, options: ReadOptions) -> list[QueueRange]:
        """Return the chosen range of each chosen queue that has one."""
        found = []
        for queue in self.selected(options):
            begin = self.resolve(queue, options.start, options, start=True)
            end = self.resolve(queue, options.end, options, start=False)
            if begin < end:
                found.append(QueueRange(queue, begin, end))
        return found

    def pieces(self, options: ReadOptions, piece_bytes: int) -> Iterator[Piece]:
        """Cut a read into pieces of about ``piece_bytes``."""
        whole_log = (
            options.selection.is_everything
            and options.start.everywhere == EARLIEST
            and options.end.everywhere == LATEST
            and not options.start.is_time
        )
        if whole_log:
            low, high, _ = self.bounds
            yield from self.log_pieces(low, high, piece_bytes, None)
        else:
            yield from self.range_pieces(self.ranges(options), piece_bytes)

    def range_pieces(self, ranges: Sequence[QueueRange], piece_bytes: int) -> Iterator[Piece]:
        """Cut queue ranges into pieces, through the log or through the units, whichever is less."""
        light = [r for r in ranges if r.queue.topic.startswith(LIGHT_QUEUE_PREFIX)]
        plain = [r for r in ranges if not r.queue.topic.startswith(LIGHT_QUEUE_PREFIX)]
        yield from self._unit_pieces(light, piece_bytes)
        if not plain:
            return
        targets = []
        for r in plain:
            begin, end = r.commit_range
            targets.append(Target(r.queue.topic, r.queue.queue_id, begin, end))
        low, high = min(t.begin for t in targets), max(t.end for t in targets)
        wanted = sum(_bytes_of(r) for r in plain)
        if wanted >= SCAN_SHARE * (high - low):
            yield from self.log_pieces(low, high, piece_bytes, targets)
            return
        yield from self._unit_pieces(plain, piece_bytes)
        behind = [t for t in targets if t.end > self.bounds.queued_offset]
        if behind:
            begin = max(self.bounds.queued_offset, min(t.begin for t in behind))
            yield from self.log_pieces(begin, high, piece_bytes, behind)

    def _unit_pieces(self, ranges: Sequence[QueueRange], piece_bytes: int) -> Iterator[Piece]:
        bounds = (self.bounds.min_offset, min(self.bounds.end_offset, self.bounds.queued_offset))
        for r in ranges:
            end = min(r.end, r.queue.files.end)
            mean = max(r.queue.files.mean_size(r.begin, end), 1.0)
            step = max(1, int(piece_bytes / mean))
            for begin in range(r.begin, end, step):
                until = min(begin + step, end)
                yield QueuePiece(
                    self.store, r.queue.topic, r.queue.queue_id, begin, until, bounds,
                    int((until - begin) * mean),
                )  # fmt: skip

    def log_pieces(
        self, begin: int, end: int, piece_bytes: int, targets: Iterable[Target] | None
    ) -> Iterator[LogPiece]:
        """Cut commit offsets ``[begin, end)`` at records, never across a file."""
        targets = None if targets is None else tuple(targets)
        bounds = (self.bounds.min_offset, min(self.bounds.end_offset, self.bounds.queued_offset))
        for file in self.store.log.entries:
            low, high = max(file.start_offset, begin), min(file.end_offset, end)
            if low >= high:
                continue
            count = max(1, round((high - low) / piece_bytes))
            for first, last in pairwise(record_starts(self.store.log, file, low, high, count)):
                mine = targets
                if targets is not None:
                    mine = tuple(t for t in targets if t.begin < last and t.end > first)
                    if not mine:
                        continue
                yield LogPiece(self.store, file, first, last, mine, bounds)


def _bytes_of(r: QueueRange) -> float:
    in_units = min(r.end, r.queue.files.end)
    mean = r.queue.files.mean_size(r.begin, in_units)
    behind = sum(
        size
        for offset, size in zip(r.queue.tail.queue_offsets, r.queue.tail.sizes, strict=True)
        if r.begin <= offset < r.end
    )
    return max(0, in_units - r.begin) * mean + behind


def plan_messages(options: ReadOptions) -> list[tuple[Piece, ...]]:
    """Plan a batch read: each element is what one task does. Small pieces share a task."""
    if options.endpoint:
        from pipeline.source.remote_plan import plan_endpoint

        return plan_endpoint(options)
    plans = [StorePlan(StoreView.open(store)) for store in options.stores]
    return tasks_of(
        lambda size: (piece for plan in plans for piece in plan.pieces(options, size)), options
    )


def tasks_of(
    pieces: Callable[[int], Iterable[Piece]], options: ReadOptions
) -> list[tuple[Piece, ...]]:
    """Pack the pieces of about a given size into tasks, of a smaller one where that makes too few."""
    packed = pack(pieces(options.max_partition_bytes), options.max_partition_bytes)
    if 0 < len(packed) < options.min_partitions:
        total = sum(piece.cost for task in packed for piece in task)
        smaller = max(1, total // options.min_partitions)
        packed = pack(pieces(smaller), smaller)
    return packed


def pack(pieces: Iterable[Work], task_bytes: int) -> list[tuple[Work, ...]]:
    """Put neighbours into one task while they fit; a task costs about 50 ms however small."""
    tasks: list[tuple[Work, ...]] = []
    current: list[Work] = []
    cost = 0
    for piece in pieces:
        if current and cost + piece.cost > task_bytes:
            tasks.append(tuple(current))
            current, cost = [], 0
        current.append(piece)
        cost += piece.cost
    if current:
        tasks.append(tuple(current))
    return tasks


def open_queue(piece: QueuePiece | LogPiece, topic: str, queue_id: int) -> QueueFiles:
    """Open a queue's files again in a task, seen as they were planned."""
    return piece.store.open_queue(topic, queue_id, *piece.bounds)
