"""Where the log of a store ends that is not on this machine, found by reading little.

Such a store is a copy, and its files were copied one after the other: what its checkpoint says need not
be true of its log. The newest record that a queue knows is looked up, and what follows it is walked.
Behind zeros that no queue points beyond, nothing is looked for; behind other damage the file is walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pipeline.files.places import map_file
from pipeline.files.walk import ROWS_MAX, end_of_log
from storage.format.record import Verdict, blank_end, check_record
from storage.kernels.columns import (
    CHECK_ALL,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    STOP_TRUNCATED,
    STOP_ZERO,
    new_rows,
)
from storage.kernels.scan import scan_records

if TYPE_CHECKING:
    from pipeline.files.store_files import DataFile, StoreFiles

WINDOW: Final = 256 << 10
WINDOW_MAX: Final = 8 << 20


def end_of_copy(store: StoreFiles) -> int:
    """Commit offset behind the last intact record."""
    offset, size = store.newest_unit(store.log[-1].end)
    record = store.read_log(offset, size) if size else b""
    if len(record) < size or not size or check_record(record, 0, offset) is not Verdict.GOOD:
        return end_of_log(store)
    end = offset + size
    for file in store.log:
        if file.end > end:
            behind = _end_in_file(file, max(file.start, end))
            if behind is None:
                return end_of_log(store)
            end = max(end, behind)
    return end


def _end_in_file(file: DataFile, begin: int) -> int | None:
    """End of the records from ``begin`` on, 0 if there is none, None where damage follows."""
    rows = new_rows(ROWS_MAX)
    position, window, end = begin - file.start, WINDOW, 0
    while position < file.size:
        limit = min(position + window, file.size)
        data = map_file(file.path, position, limit)
        stop = STOP_ROWS_FULL
        while stop == STOP_ROWS_FULL:
            count, position, stop = scan_records(
                data, position, limit, file.start + position, CHECK_ALL, rows
            )
            if count:
                end = file.start + position
        if stop == STOP_ZERO:
            return end
        if stop == STOP_BLANK:
            return end if blank_end(data.data, position) == file.size else None
        if stop == STOP_END:
            record_size = 0
        elif stop == STOP_TRUNCATED and limit < file.size:
            record_size = int.from_bytes(data[position : position + 4].tobytes(), "big")
        else:
            return None
        window = max(min(2 * window, WINDOW_MAX), record_size)
    return end
