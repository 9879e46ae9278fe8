"""Units of a queue as a task reads them: believed as far as their records agree, else made from the log.

``records_of`` then looks up their records, file by file of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import PREFILL_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels.columns import ByteArray, Rows, new_rows
from storage.kernels.lookup import check_units
from storage.kernels.unit_record import agreeing
from storage.view.log.files import ListedLog
from storage.view.queues.queue_files import UNITS_MAX, QueueFiles
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits
from storage.view.queues.unit_search import NO_UNIT

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
CODE_LOW = -(1 << 31)


class UnitBatch(NamedTuple):
    """Units by queue offset: commit offsets and sizes. ``lost`` others have nothing in file or log.

    ``mapped`` has, by where a log file starts, its bytes at the records; empty where a unit was replaced.
    """

    queue_offsets: Int64s
    commit_offsets: Int64s
    sizes: Int64s
    mapped: dict[int, ByteArray]
    lost: int


class FileRecords(NamedTuple):
    """Records of one file: the ``places`` of their units in the batch, the bytes, and a row and a stop each.

    ``file`` is None where the log begins later; the rest is empty then. A row whose stop is not STOP_END is of a
    record that is damaged.
    """

    places: Int64s
    file: FileEntry | None
    data: ByteArray
    rows: Rows
    stops: Int64s


class CheckedUnits:
    """Reads the units of one queue; ``bounds`` are those of the log whose records are in queues.

    ``since`` is the commit offset from which on the topic's records count.
    """

    def __init__(
        self,
        log: ListedLog,
        queue: QueueFiles,
        topic: str,
        queue_id: int,
        *,
        bounds: tuple[int, int],
        since: int,
    ) -> None:
        self._log = log
        self._queue = queue
        self._rebuilt = RebuiltUnits(
            log, topic, queue_id, queue, lambda: self._extent, since=lambda: since
        )
        self._extent = Extent(queue.begin, queue.end, *bounds)
        self._name = np.frombuffer(topic.encode(), np.uint8)
        self._kernel_id = -1 if topic.startswith(LIGHT_QUEUE_PREFIX) else queue_id

    def place(self, queue_offset: int) -> tuple[int, int]:
        """Return commit offset and size of a record; zeros where neither file nor log has it."""
        unit = self._rebuilt.agreeing(queue_offset) or NO_UNIT
        return unit.commit_offset, unit.size

    def read(self, begin: int, end: int, tag_codes: Int64s | None = None) -> Iterator[UnitBatch]:
        """Yield the units of ``[begin, end)``, at most ``UNITS_MAX`` at a time; pre-fill ones are left out.

        With sorted ``tag_codes`` those are left out that have another one.
        """
        at = begin
        while at < end:
            units = self._queue.units(at, min(UNITS_MAX, end - at))
            if not len(units):
                none = np.zeros(0, np.int64)
                yield UnitBatch(none, none, none, {}, end - at)
                return
            offsets, sizes = units["offset"].astype(np.int64), units["size"].astype(np.int64)
            numbers = at + np.arange(len(units))
            at += len(units)
            kept = ~((offsets == 0) & (sizes == PREFILL_SIZE))
            gone = self._are_gone(offsets, sizes)
            if tag_codes is not None:
                kept &= may_be_tagged(units["tag"].astype(np.int64), sizes, tag_codes)
            yield self._checked(numbers[kept], offsets[kept], sizes[kept], gone[kept])

    def _are_gone(self, offsets: Int64s, sizes: Int64s) -> Bools:
        """Return which units are in order, and point to a part of the log that is lost.

        None that points before the part that the queue begins with: that was removed before.
        """
        starts = np.array([entry.start_offset for entry in self._log.entries], np.int64)
        ends = np.array([entry.end_offset for entry in self._log.entries], np.int64)
        file_of = np.searchsorted(starts, offsets, side="right") - 1
        gone: Bools = (sizes > 0) & (offsets < self._log.end_offset)
        gone &= (file_of < 0) | (offsets >= np.append(ends, 0)[file_of])
        gone &= offsets >= self._extent.min_commit_offset
        gone[1:] &= offsets[1:] >= offsets[:-1]
        gone[:-1] &= offsets[:-1] <= offsets[1:]
        return gone

    def _checked(self, numbers: Int64s, offsets: Int64s, sizes: Int64s, gone: Bools) -> UnitBatch:
        """Replace the units with which no record agrees; those for which there is nothing go."""
        agrees, mapped = self._agreeing(numbers, offsets, sizes)
        agrees |= gone
        there = np.ones(len(numbers), np.bool_)
        wrong = np.flatnonzero(~agrees)
        while len(wrong):
            number = int(numbers[wrong[0]])
            made = self._rebuilt.unit(number)
            run = self._rebuilt.run_at(number)
            count = 1 if run is None else int(np.searchsorted(numbers[wrong], run.end))
            places, wrong = wrong[:count], wrong[count:]
            if run is not None:
                units = run.units[numbers[places] - run.begin]
                offsets[places], sizes[places] = units["offset"], units["size"]
            elif made is not None:
                offsets[places], sizes[places] = made.commit_offset, made.size
            there[places] = made is not None if run is None else units["size"] != 0
        lost = len(numbers) - int(np.count_nonzero(there))
        if not np.all(agrees):
            mapped = {}
        return UnitBatch(numbers[there], offsets[there], sizes[there], mapped, lost)

    def _agreeing(
        self, numbers: Int64s, offsets: Int64s, sizes: Int64s
    ) -> tuple[Bools, dict[int, ByteArray]]:
        agrees = np.zeros(len(numbers), np.int64)
        mapped: dict[int, ByteArray] = {}
        for entry in self._log.entries:
            inside = (sizes > 0) & (offsets >= entry.start_offset)
            inside &= offsets <= entry.end_offset - np.maximum(sizes, 0)
            mine = np.flatnonzero(inside)
            if not len(mine):
                continue
            begins = offsets[mine] - entry.start_offset
            try:
                data = self._log.map(entry, begins, begins + sizes[mine])
            except FileNotFoundError:
                continue
            mapped[entry.start_offset] = data
            found = np.zeros(len(mine), np.int64)
            agreeing(
                data, entry.start_offset, offsets[mine], sizes[mine], numbers[mine],
                self._name, self._kernel_id, found,
            )  # fmt: skip
            agrees[mine] = found
        return agrees.astype(np.bool_), mapped


def may_be_tagged(codes: Int64s, sizes: Int64s, tag_codes: Int64s) -> Bools:
    """Return which units have one of the sorted hashes, or none; a code that is no hash says nothing."""
    is_hash = (codes >= CODE_LOW) & (codes < -CODE_LOW)
    may_be: Bools = ~is_hash | (sizes <= 0) | np.isin(codes, tag_codes)
    return may_be


def records_of(log: ListedLog, units: UnitBatch, checks: int) -> Iterator[FileRecords]:
    """Yield the records of units, checked by bits of ``storage.kernels.columns``. Raises FileNotFoundError."""
    offsets, sizes = units.commit_offsets, units.sizes
    starts = np.array([file.start_offset for file in log.entries], np.int64)
    file_of = np.searchsorted(starts, offsets, side="right") - 1
    for number in np.unique(file_of).tolist():
        places = np.flatnonzero(file_of == number)
        rows, stops = new_rows(len(places)), np.empty(len(places), np.int64)
        if number < 0:
            yield FileRecords(places, None, np.empty(0, np.uint8), rows[:0], stops[:0])
            continue
        file = log.entries[number]
        data = units.mapped.get(file.start_offset)
        if data is None:
            begins = offsets[places] - file.start_offset
            data = log.map(file, begins, np.minimum(begins + sizes[places], file.size))
        check_units(data, file.start_offset, offsets[places], sizes[places], checks, rows, stops)
        yield FileRecords(places, file, data, rows, stops)
