"""Followers of the commit log.

A follower has a position of its own and reads whole records, many at a time, up to the offset that
the writer has confirmed; it never waits for another follower. Damage in the log is stepped over: the
next whole record counts that stands where it says it stands.

A follower goes on where it was, at what may be the end of a log that grows, and trusts the writer for the
checksums. Where no record is, ``walk`` says what is there and where the log goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.kernels import columns, scan
from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.view.log.walk import DamagedRange, LogFiles, RecordRun, walk_log

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray

ROWS_MAX: Final = 8_192


class LogFollower:
    """Walks the commit log from ``position``; subclasses take the rows.

    ``position`` is always the start of a record, a blank record or a file, or where damage begins.
    """

    def __init__(self, files: LogFiles, position: int, *, rows_max: int = ROWS_MAX) -> None:
        self.position = position
        self._files = files
        self._rows = columns.new_rows(rows_max)

    def scan(self, data: ByteArray, begin: int) -> tuple[int, int, int]:
        """Fill the row table from ``data``, which starts at ``begin``; see ``scan_records``."""
        return scan.scan_records(data, 0, len(data), begin, CHECK_COMMIT_OFFSET, self._rows)

    def take(self, records: RecordRun) -> None:
        """Handle a run of whole records; its row table is good until the return."""
        raise NotImplementedError

    def skip_damage(self, begin: int, end: int) -> None:
        """Handle a range ``[begin, end)`` without a readable record; the default does nothing."""

    def step(self, limit: int) -> bool:
        """Go on by one chunk, not beyond ``limit``; return whether ``position`` moved."""
        begin = self.position
        if begin >= limit:
            return False
        file = self._files.find(begin)
        if file is not None:
            place = begin - file.start_offset
            data = file.array[place : place + limit - begin]
            count, size, _ = self.scan(data, begin)
            if count:
                self.take(RecordRun(data, begin, self._rows[:count], begin, begin + size))
                self.position = begin + size
                return True
        met = next(walk_log(self._files, begin, limit, checks=CHECK_COMMIT_OFFSET, rows_max=1))
        if isinstance(met, RecordRun):  # the file has ended, and the next one begins with it
            self.position = met.begin_offset
        elif isinstance(met, DamagedRange):
            self.skip_damage(begin, met.end_offset)
            self.position = met.end_offset
        else:
            start = self._files.next_start(begin)
            if file is None and (start is None or start > limit):
                return False
            if met.at_blank:
                self.position = limit if start is None else min(start, limit)
            else:
                self.skip_damage(begin, limit)
                self.position = limit
        return self.position != begin
