"""Followers of the commit log.

A follower has a position of its own and reads whole records, many at a time, up to the offset that
the writer has confirmed; it never waits for another follower. Damage in the log is stepped over: the
next whole record counts that stands where it says it stands.

``walk`` reads a log that has no writer, to its end, and says what it found there; a follower goes
on where it was, at what may be the end of a log that grows, and trusts the writer for the checksums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from storage.format.record import blank_end
from storage.format.record_layout import BLANK_SIZE
from storage.kernels import columns, scan
from storage.view.log.walk import LogFiles, RecordRun

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
        return scan.scan_records(data, 0, len(data), begin, columns.CHECK_COMMIT_OFFSET, self._rows)

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
        data = self._view(begin, limit - begin)
        if data is None or len(data) == 0:
            start = self._files.next_start(begin)
            if start is None or start > limit:
                return False
            self.skip_damage(begin, start)
            self.position = start
            return True
        count, next_position, stop = self.scan(data, begin)
        if count:
            self.take(RecordRun(data, begin, self._rows[:count], begin, begin + next_position))
        position = begin + next_position
        if stop == columns.STOP_BLANK and self._ends_file(position):
            start = self._files.next_start(position)
            position = limit if start is None else min(start, limit)
        elif stop not in (columns.STOP_END, columns.STOP_ROWS_FULL):
            found = scan.find_record(data, next_position + 1, len(data), position + 1)
            damage_end = begin + (len(data) if found < 0 else found)
            self.skip_damage(position, damage_end)
            position = damage_end
        self.position = position
        return position != begin

    def _view(self, commit_offset: int, length: int) -> ByteArray | None:
        """Return up to ``length`` bytes of the log, not past their file's end; None where no file is."""
        file = self._files.find(commit_offset)
        if file is None:
            return None
        position = commit_offset - file.start_offset
        return file.array[position : position + length]

    def _ends_file(self, position: int) -> bool:
        """Whether the blank at ``position`` is as long as what is left of its file."""
        head = self._view(position, BLANK_SIZE)
        if head is None:
            return True  # the file has just been deleted
        end = position + blank_end(head.data, 0)
        if end == self._files.next_start(position):
            return True
        rest = self._view(position, max(end + 1 - position, 0))
        return rest is None or position + len(rest) == end
