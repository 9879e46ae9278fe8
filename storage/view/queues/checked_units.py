"""Units of a queue as a task reads them, with their records: those that none confirms are made from the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry
from storage.format.consume_entry import PREFILL_SIZE
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.kernels.columns import STOP_END, ByteArray, Rows, new_rows
from storage.kernels.lookup import check_units
from storage.view.log.commit_log import ListedLog
from storage.view.queues.queue_files import UNITS_MAX, QueueFiles
from storage.view.queues.rebuilt_units import Extent, RebuiltUnits

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
CODE_LOW = -(1 << 31)
ANY_OFFSET = -1  # whatever queue and queue offset a record says, it is the unit's


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


class UnitBatch(NamedTuple):
    """Units by queue offset: commit offsets and sizes, and their records, file by file of the log.

    ``lost`` others have nothing in file or log.
    """

    queue_offsets: Int64s
    commit_offsets: Int64s
    sizes: Int64s
    records: list[FileRecords]
    lost: int


class CheckedUnits:
    """Reads the units of one queue; ``bounds`` are those of the log whose records are in queues.

    ``since`` is the commit offset from which on the topic's records count. ``checks`` of methods are bits of
    ``storage.kernels.columns``. They raise FileNotFoundError.
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
        unit = self._rebuilt.agreeing(queue_offset)
        return (0, 0) if unit is None else unit[:2]

    def read(
        self, begin: int, end: int, checks: int, tag_codes: Int64s | None = None
    ) -> Iterator[UnitBatch]:
        """Yield the units of ``[begin, end)``, at most ``UNITS_MAX`` at a time; pre-fill ones are left out.

        With sorted ``tag_codes`` those are left out that have another one.
        """
        for at in range(begin, end, UNITS_MAX):
            units = self._queue.units(at, min(UNITS_MAX, end - at))
            offsets, sizes = units["offset"].astype(np.int64), units["size"].astype(np.int64)
            numbers = at + np.arange(len(units))
            kept = ~((offsets == 0) & (sizes == PREFILL_SIZE))
            if tag_codes is not None:
                kept &= may_be_tagged(units["tag"].astype(np.int64), sizes, tag_codes)
            yield self._checked(numbers[kept], offsets[kept], sizes[kept], checks)

    def _checked(self, numbers: Int64s, offsets: Int64s, sizes: Int64s, checks: int) -> UnitBatch:
        """Replace the units that no record confirms; those for which there is nothing go."""
        records = self._records(numbers, offsets, sizes, checks)
        is_right = np.zeros(len(numbers), np.bool_)
        for each in records:
            is_right[each.places[: len(each.stops)]] = each.stops == STOP_END
        if np.all(is_right):
            return UnitBatch(numbers, offsets, sizes, records, 0)
        there = np.ones(len(numbers), np.bool_)
        wrong = np.flatnonzero(~is_right)
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
        asked = np.where(is_right, numbers, ANY_OFFSET)[there]
        numbers, offsets, sizes = numbers[there], offsets[there], sizes[there]
        records = self._records(asked, offsets, sizes, checks)
        return UnitBatch(numbers, offsets, sizes, records, lost)

    def unqueued(
        self, queue_offsets: Int64s, commit_offsets: Int64s, sizes: Int64s, checks: int
    ) -> UnitBatch:
        """Return records of the queue that have no units yet, found by a walk."""
        asked = np.full(len(queue_offsets), ANY_OFFSET)
        records = self._records(asked, commit_offsets, sizes, checks)
        return UnitBatch(queue_offsets, commit_offsets, sizes, records, 0)

    def _records(
        self, queue_offsets: Int64s, offsets: Int64s, sizes: Int64s, checks: int
    ) -> list[FileRecords]:
        """Look up the records of units, file by file of the log."""
        files, found = self._log.entries, []
        starts = np.array([file.start_offset for file in files], np.int64)
        file_of = np.searchsorted(starts, offsets, side="right") - 1
        for number in np.unique(file_of).tolist():
            places = np.flatnonzero(file_of == number)
            rows, stops = new_rows(len(places)), np.empty(len(places), np.int64)
            if number < 0:
                found.append(FileRecords(places, None, np.empty(0, np.uint8), rows[:0], stops[:0]))
                continue
            file = files[number]
            begins = offsets[places] - file.start_offset
            data = self._log.map(file, begins, np.minimum(begins + sizes[places], file.size))
            check_units(
                data, file.start_offset, offsets[places], sizes[places], queue_offsets[places],
                self._name, self._kernel_id, checks, rows, stops,
            )  # fmt: skip
            found.append(FileRecords(places, file, data, rows, stops))
        return found


def may_be_tagged(codes: Int64s, sizes: Int64s, tag_codes: Int64s) -> Bools:
    """Return which units have one of the sorted hashes, or none; a code that is no hash says nothing."""
    is_hash = (codes >= CODE_LOW) & (codes < -CODE_LOW)
    may_be: Bools = ~is_hash | (sizes <= 0) | np.isin(codes, tag_codes)
    return may_be
