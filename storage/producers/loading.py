"""What a start knows of producers' requests: what was saved, and what the log has got since."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.format.producers.windows import Parts, decode_windows, is_torn
from storage.kernels.columns import STORE_TIMESTAMP
from storage.kernels.producers.sequences import FOUND_COLUMN_COUNT, find_sequences
from storage.view.log.walk import ROWS_MAX, DamagedRange, RecordRun, walk_log

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.producers.windows import ProducerWindows
    from storage.view.log.walk import LogFiles

PRODUCERS_FILE: Final = "producers.sequences"
BACKUP: Final = ".bak"
TAIL_BYTES: Final = 256 << 20  # of the log, which is read where nothing whole was saved
_LOG: Final = logging.getLogger(__name__)


def load_windows(
    windows: ProducerWindows, filesystem: FileSystem, path: Path, files: LogFiles, *,
    min_offset: int, end_offset: int, now_ms: int,
) -> tuple[bool, int]:  # fmt: skip
    """Fill empty windows; return whether they have to be saved before anything is appended, and from where on the log was read.

    They have where the log from the saved offset on does not say it all a second time: what is appended next
    stands where it has ended now. Raises OSError.
    """
    saved = _saved(windows, filesystem, path, end_offset)
    begin = min_offset if saved is None else saved
    if saved is None or saved < min_offset:
        begin = _tail_begin(files, min_offset, end_offset)
    loading = _Loading(windows, now_ms, is_all=begin == (saved or 0))
    for step in walk_log(files, min(begin, end_offset), end_offset):
        if isinstance(step, RecordRun):
            loading.take(step)
        elif isinstance(step, DamagedRange):
            loading.lose(step)
    loading.end(end_offset)
    windows.is_changed = loading.found_count > 0 or loading.must_save
    return loading.must_save or begin > end_offset, begin


def _saved(
    windows: ProducerWindows, filesystem: FileSystem, path: Path, end_offset: int
) -> int | None:
    """Restore what was saved; return the end of the log that it has, None if nothing whole was.

    Of two files that differ the one that has more of the log counts.
    """
    found = []
    for candidate in (path, path.with_name(path.name + BACKUP)):
        try:
            found.append(decode_windows(filesystem.read_bytes(candidate)))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            _LOG.warning("%s: %s", candidate, error)
    if not found:
        return None
    head, blocks = max(found, key=lambda each: each[0].commit_offset)
    windows.restore(head, blocks, end_offset)
    return head.commit_offset


def _tail_begin(files: LogFiles, min_offset: int, end_offset: int) -> int:
    """Return where the file begins that has what is TAIL_BYTES before the end, or the log."""
    wanted = max(min_offset, end_offset - TAIL_BYTES)
    file = files.find(wanted)
    return min_offset if file is None else max(file.start_offset, min_offset)


class _Loading:
    """Requests as a walk of the log meets them."""

    def __init__(self, windows: ProducerWindows, now_ms: int, *, is_all: bool) -> None:
        """``is_all`` says that nothing before the walk is unknown."""
        self._windows = windows
        self._now_ms = now_ms
        self._is_all = is_all
        self._found = np.empty((ROWS_MAX, FOUND_COLUMN_COUNT), np.int64)
        self._open: tuple[int, int, Parts] | None = None  # of which more is to come
        self.found_count = 0
        self.must_save = False

    def take(self, run: RecordRun) -> None:
        if not self._is_all:
            self._windows.doubt(int(run.rows[0, STORE_TIMESTAMP]))
            self._is_all = True
        self._close(run.begin_offset)
        count = find_sequences(run.data, run.rows, self._found)
        assert count >= 0
        now_ms = min(int(run.rows[-1, STORE_TIMESTAMP]), self._now_ms)
        for producer_id, sequence, begin, size in self._found[:count].tolist():
            former = self._windows.parts_of(producer_id, sequence)
            if former and not is_torn(former):
                continue  # stored and known: nothing that we have written
            parts = (*former[:-1], begin, begin + size)
            self._windows.note(producer_id, sequence, parts, now_ms)
            self.found_count += 1
            if begin + size > run.end_offset:
                self._open = producer_id, sequence, parts

    def lose(self, damaged: DamagedRange) -> None:
        """Take in damage: requests may have begun in it, and of one that it lies in nobody knows what is there."""
        self._close(damaged.begin_offset)
        if self._open is not None:
            self._windows.forget(*self._open[:2])
            self._open = None
        self._windows.doubt(self._now_ms)
        self.must_save = True

    def end(self, end_offset: int) -> None:
        """Take in that the log ends: what is missing of its last request is to be appended."""
        self._close(end_offset)
        if self._open is not None:
            producer_id, sequence, parts = self._open
            self._windows.note(producer_id, sequence, (*parts[:-1], end_offset, 0), self._now_ms)
            self.must_save = True
        if not self._is_all:
            self._windows.doubt(self._now_ms)

    def _close(self, offset: int) -> None:
        if self._open is not None and self._open[2][-1] <= offset:
            self._open = None
