"""A store directory as files: what is there, and how far it may be read.

How far: a store whose checkpoint page is ours says it itself. What its writer has confirmed is read
while the machine has not rebooted since, and what was durable after that. Of any other store, a
broker's say or a copy behind a URL, the end is where the last intact record of the log ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import NotAStore
from pipeline.files.places import ByteArray as ByteArray
from pipeline.files.places import Place, Url, entries, place_of, read_at
from pipeline.files.places import map_file as map_file
from storage.format import checkpoint
from storage.format.checkpoint import UnknownVersion, WriterSlot
from storage.format.consume_entry import UNIT_SIZE
from storage.format.names import parse_file_name, without_intruders
from storage.format.record import Verdict, check_record
from storage.format.record_layout import (
    COMMIT_OFFSET_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)
from storage.format.store_time import HEAD_SIZE, store_time_of

if TYPE_CHECKING:
    from mmap import mmap

    from pipeline.files.queue_files import QueueFiles

LOG_DIRECTORY: Final = "commitlog"
QUEUE_DIRECTORY: Final = "consumequeue"
INDEX_DIRECTORY: Final = "index"
CHECKPOINT: Final = "checkpoint"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
UNIT_DTYPE: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tag", ">i8")])
OPENED_AT_ONCE: Final = 16  # queues of a store that is not on this machine
BOUNDARY_WINDOW: Final = 64 << 10
MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class DataFile(NamedTuple):
    """One file of a sequence: where its first byte lies in it, and how long it is."""

    start: int
    size: int
    path: str

    @property
    def end(self) -> int:
        """Where the byte after its last one lies."""
        return self.start + self.size


def list_files(directory: Place) -> list[DataFile]:
    """List files that are named by their offset, in order; none where there is no directory.

    A file ends where the next one begins, however long it is.
    """
    found = sorted(
        DataFile(start, entry.size, entry.path)
        for entry in entries(directory)
        if (start := parse_file_name(entry.name)) is not None and not entry.is_directory
    )
    found = [found[place] for place in without_intruders([(f.start, f.size) for f in found])]
    nexts = [file.start for file in found[1:]]
    return [
        file._replace(size=min(file.size, following - file.start))
        for file, following in zip(found, [*nexts, 1 << 62], strict=False)  # none for no file
    ]


class Bounds(NamedTuple):
    """``[min_offset, end_offset)`` may be read; queues cover the records below ``queued_offset``."""

    min_offset: int
    end_offset: int
    queued_offset: int


@dataclass(frozen=True)
class StoreFiles:
    """One store directory. Listings are made once: what comes later is for the next plan."""

    root: Place

    @classmethod
    def open(cls, root: Place | str) -> StoreFiles:
        """Return the store at ``root``; NotAStore if there is none."""
        store = cls(place_of(root))
        if isinstance(store.root, Url):
            store.root.look()
        if not store.root.is_dir():
            raise NotAStore(f"{root}: no such directory; option 'store' takes a store's directory")
        if not (store.root / LOG_DIRECTORY).is_dir():
            raise NotAStore(f"{root}: no store: it has no directory {LOG_DIRECTORY!r}")
        return store

    @cached_property
    def log(self) -> list[DataFile]:
        """Files of the commit log."""
        return [file for file in list_files(self.root / LOG_DIRECTORY) if file.size]

    def queue_directories(self) -> Iterator[tuple[str, int, Place]]:
        """Yield topic, queue id and directory of each queue on disk, sorted."""
        directory = self.root / QUEUE_DIRECTORY
        for topic in sorted(entries(directory)):
            if not topic.is_directory:
                continue
            place = directory / topic.name
            ids = [entry.name for entry in entries(place) if entry.name.isdigit()]
            for queue_id in sorted(map(int, ids)):
                yield topic.name, queue_id, place / str(queue_id)

    def file_of(self, commit_offset: int) -> DataFile | None:
        """Return the log file that holds a commit offset."""
        for file in reversed(self.log):
            if file.start <= commit_offset:
                return file if commit_offset < file.end else None
        return None

    def read_log(self, commit_offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the log, less where the file ends or is gone."""
        file = self.file_of(commit_offset)
        if file is None:
            return b""
        try:
            return read_at(
                file.path, commit_offset - file.start, min(size, file.end - commit_offset)
            )
        except FileNotFoundError:
            return b""

    def record_time_ms(self, commit_offset: int, size: int | None = None) -> int:
        """Return when the record at a commit offset was stored; NO_TIME if no head of one is there.

        ``size`` is what a unit says of it, None where it is known from nowhere else.
        """
        head = self.read_log(commit_offset, HEAD_SIZE)
        named = int.from_bytes(head[:4], "big") if size is None else size
        return store_time_of(head, commit_offset, named)

    def next_there(self, commit_offset: int) -> int | None:
        """Return where the log has bytes from ``commit_offset`` on; None after its last file."""
        ends = (max(commit_offset, file.start) for file in self.log if file.end > commit_offset)
        return next(ends, None)

    @cached_property
    def page(self) -> bytes:
        """The checkpoint page; empty where there is none."""
        try:
            return (self.root / CHECKPOINT).read_bytes()[: checkpoint.PAGE_SIZE]
        except FileNotFoundError:
            return b""

    def stated_bounds(self) -> Bounds | None:
        """Return what our writer says of the store, None if no word of it can be trusted."""
        whole = self._writer_slots()
        if not whole:
            return None
        start = self.log[0].start if self.log else 0
        live = checkpoint.WRITER_LIVE_LAYOUT.unpack_from(self.page, checkpoint.WRITER_LIVE_POSITION)
        boot = BOOT_ID.read_text().replace("-", "").strip() if BOOT_ID.exists() else ""
        low_high = live[2].to_bytes(8, "little", signed=True) + live[3].to_bytes(
            8, "little", signed=True
        )
        if live[0] == checkpoint.WRITER_LIVE_MAGIC and low_high.hex() == boot:
            min_offset, confirm, dispatched = live[6], live[10], live[11]
            return Bounds(max(min_offset, start), confirm, min(dispatched, confirm))
        newest = checkpoint.newest_slot(whole)
        return Bounds(
            start, newest.flushed_offset, min(newest.dispatched_offset, newest.flushed_offset)
        )

    def _writer_slots(self) -> dict[int, WriterSlot]:
        """Return the writer's whole slots, none if a broker has run since."""
        with self._versions_known():
            slots = checkpoint.writer_slots(self.page)
        return slots if checkpoint.is_ours(self.page, slots) else {}

    @contextmanager
    def _versions_known(self) -> Iterator[None]:
        try:
            yield
        except UnknownVersion as error:
            raise NotAStore(f"{self.root}: {error}; use the Penstock that wrote it") from error

    def stated_index_end(self) -> int | None:
        """Return up to where our indexer says that every key is durably in the index.

        0 where it has said nothing of this store, None if no word of the page can be trusted.
        """
        bounds = self.stated_bounds()
        if bounds is None:
            return None
        with self._versions_known():
            slots = checkpoint.indexer_slots(self.page)
        if not slots:
            return 0
        newest = checkpoint.newest_slot(slots)
        if newest.store_id != checkpoint.newest_slot(self._writer_slots()).store_id:
            return 0
        return min(newest.indexed_offset, bounds.end_offset)

    @cached_property
    def bounds(self) -> Bounds:
        """How far the store may be read, fixed at the first look."""
        is_here = not isinstance(self.root, Url)
        stated = self.stated_bounds() if is_here else None
        if stated is not None:
            return stated
        if not self.log:
            return Bounds(0, 0, 0)
        from pipeline.files.far_end import end_of_copy
        from pipeline.files.walk import end_of_log

        end = end_of_log(self) if is_here else end_of_copy(self)
        start = self.log[0].start
        return Bounds(start, end, min(end, max(start, sum(self.newest_unit(end)))))

    def newest_unit(self, end_offset: int) -> tuple[int, int]:
        """Commit offset and size of the newest record below ``end_offset`` that a queue points to.

        Zeros if there is none.
        """
        newest = (0, 0)
        for queue in self.open_queues(self.log[0].start, end_offset).values():
            if queue.end > queue.begin:
                newest = max(newest, queue.unit(queue.end - 1)[:2])
        return newest

    def open_queues(self, min_offset: int, end_offset: int) -> dict[tuple[str, int], QueueFiles]:
        """Return the files of each queue, by topic and queue id, sorted."""
        from pipeline.files.frontier import settled
        from pipeline.files.queue_files import QueueFiles

        def opened(queue: tuple[str, int, Place]) -> QueueFiles:
            return QueueFiles.open(queue[2], min_offset, end_offset)

        queues = list(self.queue_directories())
        if not isinstance(self.root, Url):
            files = [settled(self, queue[0], opened(queue), end_offset) for queue in queues]
        else:
            with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
                files = list(pool.map(opened, queues))
        return {
            (topic, queue_id): queue
            for (topic, queue_id, _), queue in zip(queues, files, strict=True)
        }


def find_boundary(data: mmap | Any, begin: int, end: int, commit_offset_of_start: int) -> int:
    """Position of the first record at or after ``begin``, ``end`` if there is none before it.

    ``commit_offset_of_start`` is that of ``data[0]``. Only a record that names its own place and has
    every checksum right counts, so magic bytes inside a body are passed over. Records are not
    decoded, one check a boundary.
    """
    window = begin
    while window < end:
        # Both magics within one window: one that never comes must not be looked for to the end.
        stop = min(window + BOUNDARY_WINDOW, end)
        found = sorted(
            at - MAGIC_POSITION
            for magic in MAGICS
            for at in _all_at(data, magic, window + MAGIC_POSITION, min(stop + 2 * len(magic), end))
        )
        for position in found:
            if _is_record(data, position, end, commit_offset_of_start + position):
                return position
        window = stop
    return end


def _all_at(data: Any, magic: bytes, begin: int, end: int) -> Iterator[int]:
    at = data.find(magic, begin, end)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1, end)


def _is_record(data: Any, position: int, end: int, commit_offset: int) -> bool:
    if position < 0 or position + RECORD_SIZE_MIN > end:
        return False
    named = data[position + COMMIT_OFFSET_POSITION : position + COMMIT_OFFSET_POSITION + 8]
    if int.from_bytes(named, "big", signed=True) != commit_offset:
        return False
    size = int.from_bytes(data[position : position + 4], "big", signed=True)
    record = data[position : min(position + max(size, 0), end)]
    return check_record(record, 0, commit_offset) is Verdict.GOOD


def units_in(data: bytes | ByteArray) -> npt.NDArray[np.void]:
    """See bytes as units: ``offset``, ``size``, ``tag``."""
    whole = len(data) - len(data) % UNIT_SIZE
    return np.frombuffer(data[:whole], UNIT_DTYPE)
