"""Walking the commit log across files, blanks, holes and damage.

One generator for everybody who follows the log: recovery, dispatch after it, the indexer, the offline
tools. It never stops at a damaged record while an intact one follows: the next record counts whose
framing, own commit offset and checksums all agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from storage.kernels.columns import (
    CHECK_ALL,
    STOP_BLANK,
    STOP_END,
    STOP_ROWS_FULL,
    Stop,
    new_rows,
)
from storage.kernels.scan import find_record, scan_records

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray

ROWS_MAX: Final = 16_384


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
class Records:
    """A run of intact records in one file.

    ``rows`` (n x COLUMN_COUNT) hold positions in ``data``, whose first byte is at commit offset
    ``data_offset``. The table is reused: it is good until the walk goes on.
    """

    data: ByteArray
    data_offset: int
    rows: npt.NDArray[np.int64]
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Commit offsets ``[begin_offset, end_offset)`` hold no intact record, but one follows."""

    begin_offset: int
    end_offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """Nothing intact follows ``commit_offset``; always the last thing a walk yields.

    A blank whose next file holds nothing is itself the end: a broker appends there, too.
    """

    commit_offset: int
    stop: Stop


def walk_log(
    files: LogFiles, begin_offset: int, limit_offset: int, *, checks: int = CHECK_ALL
) -> Iterator[Records | Damage | End]:
    """Yield what ``[begin_offset, limit_offset)`` holds, in order.

    ``begin_offset`` must be where a record, a blank or a file starts. Only a record of which every
    byte lies below the limit is given.
    """
    rows = new_rows(ROWS_MAX)
    offset = begin_offset
    resume = offset  # where the end is if nothing more is found
    while offset < limit_offset:
        file = files.find(offset)
        if file is None:
            start = files.next_start(offset)
            found = None if start is None else _next_record(files, start, limit_offset)
            if found is None:
                break
            if found > offset:
                yield Damage(offset, found, "the file is missing")
            offset = resume = found
            continue
        position = offset - file.start_offset
        end = min(len(file.array), limit_offset - file.start_offset)
        count, position, stop = scan_records(file.array, position, end, offset, checks, rows)
        next_offset = file.start_offset + position
        if count:
            yield Records(file.array, file.start_offset, rows[:count], offset, next_offset)
            resume = next_offset
        offset = next_offset
        if stop in (STOP_ROWS_FULL, STOP_END):
            continue
        if stop == STOP_BLANK:
            following = _next_record(files, file.end_offset, limit_offset)
            if following is None:
                yield End(resume, Stop(stop))
                return
            if following > file.end_offset:
                yield Damage(file.end_offset, following, "no record where the file begins")
            offset = resume = following
            continue
        following = _next_record(files, offset + 1, limit_offset)
        if following is None:
            yield End(offset, Stop(stop))
            return
        yield Damage(offset, following, str(Stop(stop).text))  # type: ignore[attr-defined]
        offset = resume = following
    yield End(resume, Stop.END)


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
        end = min(len(file.array), limit_offset - file.start_offset)
        found = int(find_record(file.array, position, end, offset))
        if found >= 0:
            return file.start_offset + found
        offset = file.end_offset
    return None
