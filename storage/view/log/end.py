"""Where a log ends by itself: after its last intact record. For stores whose writer does not say.

A store behind a URL is a copy whose files were copied one after the other: what its checkpoint says need
not be true of its log. The newest record that a queue knows is looked up there, and what follows it is
walked, so that little is fetched. Zeros that no queue points beyond are the end; after other damage the
file is walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.format.record import blank_end
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
from storage.view.log.walk import RANGE_ROWS_MAX, End, RecordRun, walk_log

if TYPE_CHECKING:
    from storage.files.mapped_file_queue import FileEntry
    from storage.view.log.files import ListedLog

WINDOW: Final = 256 << 10
WINDOW_MAX: Final = 8 << 20


def end_of_log(log: ListedLog) -> int:
    """Return the commit offset after the last intact record: of the last file that has one."""
    for entry in reversed(log.entries):
        end = None
        for step in walk_log(log, entry.start_offset, entry.end_offset):
            if isinstance(step, RecordRun):
                end = step.end_offset
        if end is not None:
            return end
    return log.start_offset


def end_after(log: ListedLog, commit_offset: int) -> int:
    """Return the commit offset after the intact records from ``commit_offset`` on.

    Damage is the end. At the blank of a file that has a successor it is where that
    one starts.
    """
    end = commit_offset
    start: int | None = commit_offset
    while start is not None:
        end, start = start, None
        for step in walk_log(log, end, log.end_offset, search_limit_offset=end):
            if isinstance(step, RecordRun):
                end = step.end_offset
            elif isinstance(step, End) and step.at_blank:
                start = log.next_start(end)
    return end


def end_of_copy(log: ListedLog, newest_offset: int, newest_size: int) -> int:
    """Return the commit offset after the last intact record of a copy.

    ``newest_offset`` and ``newest_size`` are those of the newest record that a queue points to; the size
    is 0 where no queue points to any.
    """
    record = log.record(newest_offset) if newest_size else None
    if record is None or len(record) != newest_size:
        return end_of_log(log)
    end = newest_offset + newest_size
    for entry in log.entries:
        if entry.end_offset > end:
            found = _end_in_file(log, entry, max(entry.start_offset, end))
            if found is None:
                return end_of_log(log)
            end = max(end, found)
    return end


def _end_in_file(log: ListedLog, entry: FileEntry, begin_offset: int) -> int | None:
    """End of the records from ``begin_offset`` on, 0 if there is none, None where damage follows."""
    rows = new_rows(RANGE_ROWS_MAX)
    start = entry.start_offset
    position, window, end = begin_offset - start, WINDOW, 0
    while position < entry.size:
        limit = min(position + window, entry.size)
        data = log.map(entry, position, limit)
        stop = STOP_ROWS_FULL
        while stop == STOP_ROWS_FULL:
            count, position, stop = scan_records(
                data, position, limit, start + position, CHECK_ALL, rows
            )
            if count:
                end = start + int(position)
        if stop == STOP_ZERO:
            return end
        if stop == STOP_BLANK:
            return end if blank_end(data.data, position) == entry.size else None
        if stop == STOP_END:
            record_size = 0
        elif stop == STOP_TRUNCATED and limit < entry.size:
            record_size = int.from_bytes(data[position : position + 4].tobytes(), "big")
        else:
            return None
        window = max(min(2 * window, WINDOW_MAX), record_size)
    return end
