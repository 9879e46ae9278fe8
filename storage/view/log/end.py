"""Where a log ends by itself: after its last intact record. For stores whose writer does not say.

A store behind a URL is a copy whose files were copied one after the other: what its checkpoint says need
not be true of its log. The newest record that a queue knows is looked up there, and what follows it is
walked window by window, so that little is fetched: up to zeros, or to damage that goes on for a while.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.view.log.commit_log import LENGTH_SIZE, record_runs
from storage.view.log.walk import End, RecordRun, walk_log

if TYPE_CHECKING:
    from storage.view.log.commit_log import ListedLog

WINDOW: Final = 256 << 10
WINDOW_MAX: Final = (
    8 << 20
)  # of one that holds no intact record; longer ones are looked at as a whole


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
    end, window = newest_offset, WINDOW
    while newest_size and any(log.bytes_at(end, LENGTH_SIZE) or b""):
        begin = end
        for run in record_runs(log, begin, begin + window):
            end = run.end_offset
        if end == begin and window > WINDOW_MAX:
            break
        window *= 4 if end == begin else 1
    return end if 0 < newest_size <= end - newest_offset else end_of_log(log)
