"""Where the next record begins, from anywhere in a file of the log: where it can be cut."""

from __future__ import annotations

from typing import Final

from storage.files.mapped_file_queue import FileEntry
from storage.kernels.scan import find_record
from storage.view.log.commit_log import ListedLog

WINDOW: Final = 64 << 10


def record_starts(log: ListedLog, entry: FileEntry, low: int, high: int, count: int) -> list[int]:
    """Return commit offsets that cut ``[low, high)`` of a file into about ``count`` equal parts.

    Each is where a record begins, ``low`` first and ``high`` last, and no two are the same. Raises
    FileNotFoundError.
    """
    starts = [low]
    for cut in range(1, count):
        wanted = low + (high - low) * cut // count
        if wanted > starts[-1]:
            found = _find(log, entry, wanted, high)
            if found > starts[-1]:
                starts.append(found)
    return [*starts, high]


def next_record(log: ListedLog, commit_offset: int, end_offset: int) -> int:
    """Return where the first record at or after ``commit_offset`` begins; ``end_offset`` without one."""
    for entry in log.entries:
        begin = max(commit_offset, entry.start_offset)
        found = _find(log, entry, begin, min(entry.end_offset, end_offset))
        if found >= 0:
            return found
    return end_offset


def _find(log: ListedLog, entry: FileEntry, begin_offset: int, end_offset: int) -> int:
    """Return where the first record of a range begins, -1 if it has none.

    Only what may hold it is fetched: a window that doubles until the record in it is whole.
    """
    begin, end = begin_offset - entry.start_offset, end_offset - entry.start_offset
    until = begin
    while until < end:
        until = min(begin + max(2 * (until - begin), WINDOW), end)
        data = log.map(entry, begin, until)
        found = int(find_record(data, begin, until, begin_offset))
        if found >= 0:
            return entry.start_offset + found
    return -1
