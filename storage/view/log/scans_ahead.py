"""Runs of records scanned ahead by threads, for who walks a long log: kernels let other threads run.

Where a run will begin is guessed: at the first record that stands whole at its own commit offset behind
about as many bytes as the run before takes. A guess counts only if that run ends exactly there, so the runs
are those of one scan after the other, with the same rows and the same stops. A record inside a body can be
such a guess, and then what was scanned from there on is thrown away.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.kernels.columns import STOP_END, STOP_ROWS_FULL, ByteArray, Rows, new_rows
from storage.kernels.scan import find_record, scan_records
from storage.view.log.walk import ROWS_MAX, walk_log

if TYPE_CHECKING:
    from collections.abc import Iterator

    from storage.view.log.walk import DamagedRange, End, LogFile, LogFiles, RecordRun

RUN_BYTES_MAX: Final = 16 << 20
SEARCH_BYTES: Final = 8 << 20  # in which a record has to begin for a guess
FIRST_BYTES: Final = 1 << 20  # of the first run, before it is known how long records are
LONG_LOG_BYTES: Final = 128 << 20  # from here on threads pay


def walk_long_log(
    files: LogFiles,
    begin_offset: int,
    limit_offset: int,
    *,
    search_limit_offset: int,
    promised_offset: int | None,
) -> Iterator[RecordRun | DamagedRange | End]:
    """Yield what ``walk_log`` does; of a long log runs are scanned ahead."""
    with ExitStack() as parts:
        is_long = limit_offset - begin_offset >= LONG_LOG_BYTES
        yield from walk_log(
            files, begin_offset, limit_offset, search_limit_offset=search_limit_offset,
            promised_offset=promised_offset,
            ahead=parts.enter_context(ScansAhead(ROWS_MAX)) if is_long else None,
        )  # fmt: skip


class _Run(NamedTuple):
    file_offset: int
    begin: int  # positions in the file
    end: int
    rows: Rows
    scanned: Future[tuple[int, int, int]]


class ScansAhead:
    """A context manager, for one walk at a time."""

    def __init__(self, rows_max: int, *, threads: int = 2, run_bytes: int = RUN_BYTES_MAX) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock-scan")
        self._free = [new_rows(rows_max) for _ in range(threads + 2)]
        self._runs: deque[_Run] = deque()
        self._runs_max = threads + 1
        self._rows_max = rows_max
        self._run_bytes_max = run_bytes
        self._run_bytes = min(FIRST_BYTES, run_bytes)
        self._given: Rows | None = None
        self._doubted = (-1, -1)  # file and position where a guess did not come true

    def __enter__(self) -> ScansAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._forget()
        self._pool.shutdown()

    def scan(self, file: LogFile, begin: int, end: int, checks: int) -> tuple[Rows, int, int]:
        """Scan positions ``[begin, end)`` of a file as ``scan_records`` does; return rows, position and stop.

        The rows are good until the next call. STOP_ROWS_FULL says, too, that a run ended before them.
        """
        if self._given is not None:
            self._free.append(self._given)
            self._given = None
        data, offset = file.array, file.start_offset
        if self._runs and (self._runs[0].file_offset, self._runs[0].begin) != (offset, begin):
            self._forget()
        if not self._runs:
            is_doubted = self._doubted == (offset, begin)
            until = end if is_doubted else self._guess(data, offset, begin, end)
            self._start(data, offset, begin, until, checks)
        while len(self._runs) < self._runs_max and self._runs[-1].end < end:
            last = self._runs[-1].end
            self._start(data, offset, last, self._guess(data, offset, last, end), checks)
        run = self._runs.popleft()
        self._given = run.rows
        count, position, stop = run.scanned.result()
        if count:
            bytes_of_rows = (position - begin) * (self._rows_max * 3 // 4) // count
            self._run_bytes = min(max(bytes_of_rows, 1), self._run_bytes_max)
        if run.end < end:
            if stop != STOP_END:
                self._forget()
                self._doubted = offset, position
            stop = STOP_ROWS_FULL
        return run.rows[:count], position, stop

    def _guess(self, data: ByteArray, offset: int, begin: int, end: int) -> int:
        """Return where the run after that from ``begin`` on may begin; ``end`` if that is not found."""
        at = begin + self._run_bytes
        if at >= end:
            return end
        found = int(find_record(data, at, min(at + SEARCH_BYTES, end), offset + at))
        return end if found < 0 else found

    def _start(self, data: ByteArray, offset: int, begin: int, end: int, checks: int) -> None:
        rows = self._free.pop()
        scanned = self._pool.submit(scan_records, data, begin, end, offset + begin, checks, rows)
        self._runs.append(_Run(offset, begin, end, rows, scanned))

    def _forget(self) -> None:
        """Wait for runs that are not wanted, and throw them away."""
        for run in self._runs:
            if not run.scanned.cancel():
                run.scanned.exception()
            self._free.append(run.rows)
        self._runs.clear()
