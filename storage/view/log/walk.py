"""Walking the commit log across files, blanks, holes and damage.

One generator for all who read the log: recovery, the offline tools, the scrub, which reads windows past the
page cache, and the pipeline, whose tasks walk a range of one file (``walk_range``). It never stops at a
damaged record while an intact one follows: the next record counts whose framing, own commit offset and
checksums all agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from storage.format.record import blank_end
from storage.kernels.columns import (
    CHECK_ALL,
    CHECK_COMMIT_OFFSET,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    ByteArray,
    Rows,
    new_rows,
    stop_text,
)
from storage.kernels.scan import find_record, scan_records
from storage.view.log.recovery_cases import StopDecision, Stopped, decide_stop

ROWS_MAX: Final = 16_384
SECTOR: Final = 512
ZEROS_BYTES: Final = 1 << 20  # looked at together
PROPERTIES_LENGTH_SIZE: Final = 2
UNWRITTEN_MIN: Final = 16  # zeros at the end of a sector
LENGTH_ZEROS_MAX: Final = 3  # bytes that a record may begin with
RANGE_ROWS_MAX: Final = 8_192  # of a walk through a range of one file
ROWS_FIRST: Final = 256  # of runs of about so many bytes, before it is known how long records are


class LogFile(Protocol):
    """A mapped file of the log."""

    @property
    def start_offset(self) -> int:
        """Commit offset of the first byte."""
        ...

    @property
    def end_offset(self) -> int:
        """Commit offset after the last byte."""
        ...

    @property
    def array(self) -> ByteArray:
        """The bytes."""
        ...


class LogFiles(Protocol):
    """The files of the log as one address space, lost files and all."""

    def find(self, offset: int) -> LogFile | None:
        """Return the file that holds the byte at a commit offset."""
        ...

    def next_start(self, offset: int) -> int | None:
        """Return the start of the first file after a commit offset."""
        ...


@dataclass(frozen=True, slots=True)
class RecordRun:
    """A run of intact records in one file.

    ``rows`` (n x COLUMN_COUNT) hold positions in ``data``, whose first byte is at commit offset
    ``data_offset``. The table is reused: it is good until the walk goes on.
    """

    data: ByteArray
    data_offset: int
    rows: Rows
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Commit offsets ``[begin_offset, end_offset)`` hold no intact record.

    One follows, or the walk was through a range that ends there.
    """

    begin_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing intact follows ``commit_offset``; always the last thing a walk yields.

    A blank whose next file holds nothing is itself the end: a broker appends there, too.
    """

    commit_offset: int
    reason: str
    at_blank: bool = False


def walk_log(
    files: LogFiles,
    begin_offset: int,
    limit_offset: int,
    *,
    checks: int = CHECK_ALL,
    search_limit_offset: int | None = None,
    rows_max: int = ROWS_MAX,
    run_bytes: int | None = None,
    promised_offset: int | None = None,
) -> Iterator[RecordRun | DamagedRange | End]:
    """Yield what ``[begin_offset, limit_offset)`` holds, in order.

    ``begin_offset`` must be where a record, a blank or a file starts. Only a record of which every
    byte lies below the limit is given. Behind damage, intact records are looked for up to
    ``search_limit_offset``: whoever knows how far the log can have been written saves reading the
    unwritten rest. With ``run_bytes`` a run is about as long as that, judged by the run before it:
    what is scanned is then still in the processor's cache when it is used. Nothing from ``promised_offset``
    on was promised to anybody before it was synced, together with all before it, and the machine has gone
    down since: a sector there that was never written is the end, whatever follows.
    """
    search_limit = limit_offset if search_limit_offset is None else search_limit_offset
    rows = new_rows(rows_max)
    wanted = rows_max if run_bytes is None else ROWS_FIRST
    offset = begin_offset
    resume = offset  # the end of the last intact record
    while offset < limit_offset:
        file = files.find(offset)
        if file is None:
            start = files.next_start(offset)
            following = None if start is None else _next_record(files, start, search_limit)
            blank, expected, reason = False, offset, "the file is missing"
        else:
            position = offset - file.start_offset
            file_end = _end_of(files, file)
            end = min(file_end, limit_offset) - file.start_offset
            count, position, stop = scan_records(
                file.array, position, end, offset, checks, rows[:wanted]
            )
            next_offset = file.start_offset + int(position)
            if count:
                yield RecordRun(file.array, file.start_offset, rows[:count], offset, next_offset)
                resume = next_offset
                if run_bytes is not None:
                    wanted = min(max(run_bytes * count // (next_offset - offset), 1), rows_max)
            offset = next_offset
            if stop in (STOP_ROWS_FULL, STOP_END):
                continue
            blank = stop == STOP_BLANK
            reason = stop_text(stop)
            if blank and not _ends_file(files, file, offset):
                blank, reason = False, "a blank record that does not end its file"
            expected = file_end if blank else offset
            following = _next_record(files, expected if blank else offset + 1, search_limit)
        unwritten = (
            promised_offset is not None
            and following is not None
            and expected >= promised_offset
            and _is_unwritten(files, expected, following)
        )
        decision = decide_stop(
            Stopped(blank, following is not None, following == expected, unwritten)
        )
        if decision is StopDecision.CUT or following is None:
            yield End(resume, reason, blank)
            return
        if decision is StopDecision.STEP_OVER:
            if blank:
                reason = "the next file is lost or does not begin with a record"
            yield DamagedRange(expected, following, reason)
        offset = resume = following
    yield End(resume, stop_text(STOP_END))


@dataclass(frozen=True, slots=True)
class _OneFile:
    """A range of one file as a log of its own."""

    array: ByteArray
    start_offset: int
    end_offset: int
    limit_offset: int

    def find(self, offset: int) -> LogFile | None:
        return self if self.start_offset <= offset < self.start_offset + len(self.array) else None

    def next_start(self, offset: int) -> int | None:
        # A blank that ends where the range does ends its file, too: what is longer is not read.
        return self.limit_offset if offset < self.limit_offset else None


def walk_range(
    data: ByteArray,
    data_offset: int,
    begin_offset: int,
    end_offset: int,
    *,
    checks: int = CHECK_ALL,
    run_bytes: int | None = None,
    file_end_offset: int | None = None,
) -> Iterator[RecordRun | DamagedRange]:
    """Yield what commit offsets ``[begin_offset, end_offset)`` of one file hold.

    ``data_offset`` is the commit offset of ``data[0]``. The range begins where a record or the file does
    and ends where one does. What is damaged at its end is damage, but for the blank that ends the file:
    at ``file_end_offset`` if that is given, else where ``data`` or the range ends.
    """
    data_end = data_offset + len(data)
    file = _OneFile(
        data[: end_offset - data_offset],
        data_offset,
        data_end if file_end_offset is None else file_end_offset,
        end_offset,
    )
    for step in walk_log(
        file,
        begin_offset,
        end_offset,
        checks=checks | CHECK_COMMIT_OFFSET,
        rows_max=RANGE_ROWS_MAX,
        run_bytes=run_bytes,
    ):
        if not isinstance(step, End):
            yield step
        elif step.commit_offset < end_offset and not step.at_blank:
            yield DamagedRange(step.commit_offset, end_offset, step.reason)


def _next_record(files: LogFiles, offset: int, limit_offset: int) -> int | None:
    """Return the commit offset of the first intact record at or after ``offset``."""
    while offset < limit_offset:
        file = files.find(offset)
        if file is None:
            start = files.next_start(offset)
            if start is None:
                return None
            offset = start
            continue
        position = offset - file.start_offset
        file_end = _end_of(files, file)
        end = min(file_end, limit_offset) - file.start_offset
        end = _written_end(file.array, position, end)
        found = int(find_record(file.array, position, end, offset))
        if found >= 0:
            return file.start_offset + found
        offset = file_end
    return None


def _written_end(data: ByteArray, begin: int, end: int) -> int:
    """Return where the search for records in ``data[begin:end]`` may end: little but zeros follows.

    No record ends with more zeros than the length of its properties has bytes.
    """
    while end - begin > ZEROS_BYTES and not data[end - ZEROS_BYTES : end].any():
        end -= ZEROS_BYTES - PROPERTIES_LENGTH_SIZE
    return end


def _ends_file(files: LogFiles, file: LogFile, offset: int) -> bool:
    """Whether the blank at ``offset`` is as long as what is left of its file, of whatever length."""
    end_offset = file.start_offset + blank_end(file.array.data, offset - file.start_offset)
    return end_offset in (file.end_offset, files.next_start(file.start_offset))


def _is_unwritten(files: LogFiles, begin_offset: int, end_offset: int) -> bool:
    """Whether a sector of a damaged range ends with zeros, as it does that was never written as a whole."""
    file = files.find(begin_offset)
    if file is None:
        return False
    begin = begin_offset - file.start_offset
    # The record that follows may begin in that sector with the zeros of its length, which are there all the same.
    end = min(end_offset + LENGTH_ZEROS_MAX, _end_of(files, file)) - file.start_offset
    ends = np.arange(begin + SECTOR - begin % SECTOR, end + 1, SECTOR)
    ends = ends[ends - UNWRITTEN_MIN >= begin]
    tails = file.array[ends[:, None] - np.arange(1, UNWRITTEN_MIN + 1)]
    return bool(np.any(~tails.any(axis=1)))


def _end_of(files: LogFiles, file: LogFile) -> int:
    """Where a file ends: what is too long in it does not hide the file after it."""
    following = files.next_start(file.start_offset)
    return file.end_offset if following is None else min(file.end_offset, following)
