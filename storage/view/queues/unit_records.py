"""The records that units point at, checked, file by file of the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from storage.files.mapped_file_queue import FileEntry
from storage.kernels.columns import ByteArray, Rows, new_rows
from storage.kernels.lookup import check_units
from storage.view.log.files import ListedLog
from storage.view.queues.checked_units import UnitBatch
from storage.view.queues.queue_files import UNITS_MAX

Int64s = npt.NDArray[np.int64]


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


class UnitRecords:
    """Looks up records of units, in arrays of its own: what it yields is good until the next."""

    def __init__(self, log: ListedLog, checks: int) -> None:
        """Check records as ``checks`` says, by bits of ``storage.kernels.columns``."""
        self._log = log
        self._checks = checks
        self._starts = np.array([file.start_offset for file in log.entries], np.int64)
        self._rows = new_rows(UNITS_MAX)
        self._stops = np.empty(UNITS_MAX, np.int64)

    def of(self, units: UnitBatch) -> Iterator[FileRecords]:
        """Yield the records of at most UNITS_MAX units. Raises FileNotFoundError for a file that was removed."""
        offsets, sizes = units.commit_offsets, units.sizes
        file_of = np.searchsorted(self._starts, offsets, side="right") - 1
        for number in np.unique(file_of).tolist():
            places = np.flatnonzero(file_of == number)
            if number < 0:
                yield FileRecords(
                    places, None, np.empty(0, np.uint8), self._rows[:0], self._stops[:0]
                )
                continue
            file = self._log.entries[number]
            data = units.mapped.get(file.start_offset)
            if data is None:
                begins = offsets[places] - file.start_offset
                data = self._log.map(file, begins, np.minimum(begins + sizes[places], file.size))
            check_units(
                data, file.start_offset, offsets[places], sizes[places], self._checks,
                self._rows, self._stops,
            )  # fmt: skip
            count = len(places)
            yield FileRecords(places, file, data, self._rows[:count], self._stops[:count])
