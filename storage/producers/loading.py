"""What a start knows of producers' requests: what was saved, and what the log has got since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.format.producer_windows import Parts, decode_windows, is_torn
from storage.kernels.columns import STORE_TIMESTAMP
from storage.kernels.producer_sequences import (
    FOUND_COLUMN_COUNT,
    find_sequences,
)
from storage.producers.windows import NOWHERE
from storage.view.log.walk import ROWS_MAX, DamagedRange, RecordRun, walk_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.producers.windows import ProducerWindows
    from storage.view.log.walk import LogFiles

STATE: Final = "producers"  # in the writer's journal
TAIL_BYTES: Final = 256 << 20  # of the log, which is read where nothing whole was saved
READ_MAX: Final = 512 << 20  # of the log since something was saved; of more the tail is read


def load_windows(
    windows: ProducerWindows, saved: bytes, files: LogFiles, *,
    min_offset: int, end_offset: int, now_ms: int,
) -> tuple[bool, int]:  # fmt: skip
    """Fill empty windows with what was ``saved``, b"" for nothing, and what the log has got since.

    Return whether they have to be saved before anything is appended, and from where on the log was read. They
    have where the log from the saved offset on does not say it all a second time: what is appended next
    stands where it has ended now. Raises OSError.
    """
    saved_offset = None
    if saved:
        head, blocks = decode_windows(saved)
        windows.restore(head, blocks, end_offset)
        saved_offset = head.commit_offset
    begin = saved_offset or 0
    if saved_offset is None or not max(min_offset, end_offset - READ_MAX) <= saved_offset:
        begin = max(min_offset, end_offset - TAIL_BYTES)
    is_all = begin == (saved_offset or 0)
    loading = _Loading(windows, now_ms, is_all=is_all)
    for step in walk_log(files, min(begin, end_offset), end_offset):
        if isinstance(step, RecordRun):
            loading.take(step)
        elif isinstance(step, DamagedRange) and (is_all or step.begin_offset > begin):
            loading.lose(step)  # another tail begins in the middle of a record
    loading.end(end_offset)
    windows.is_changed = loading.found_count > 0 or loading.must_save
    return loading.must_save or begin > end_offset, begin


class _Loading:
    """Requests as a walk of the log meets them."""

    def __init__(self, windows: ProducerWindows, now_ms: int, *, is_all: bool) -> None:
        """``is_all`` says that nothing before the walk is unknown."""
        self._windows = windows
        self._now_ms = now_ms
        self._is_all = is_all
        self._found = np.empty((ROWS_MAX, FOUND_COLUMN_COUNT), np.int64)
        self._last: tuple[int, int, Parts] | None = None  # request, of which more may be to come
        self.found_count = 0
        self.must_save = False

    def take(self, run: RecordRun) -> None:
        if not self._is_all:
            self._windows.doubt(min(int(run.rows[0, STORE_TIMESTAMP]), self._now_ms))
            self._is_all = True
        count = int(find_sequences(run.data, run.rows, self._found))
        assert count >= 0
        stored_ms = min(int(run.rows[-1, STORE_TIMESTAMP]), self._now_ms)
        for producer_id, sequence, begin, size in self._found[:count].tolist():
            former = self._windows.parts_of(producer_id, sequence)
            if former is not None and not is_torn(former):
                continue  # stored and known: nothing that we have written
            parts = (*(former or ())[:-1], begin, begin + size)
            self._windows.note(producer_id, sequence, parts, stored_ms)
            self.found_count += 1
            self._last = producer_id, sequence, parts

    def lose(self, damaged: DamagedRange) -> None:
        """Take in damage: requests may have begun in it, and of one that it lies in nobody knows what is there."""
        self._cut(damaged.begin_offset, lambda _: NOWHERE)
        self._windows.doubt(self._now_ms)
        self.must_save = True

    def end(self, end_offset: int) -> None:
        """Take in that the log ends: what is missing of its last request is to be appended."""
        if self._cut(end_offset, lambda parts: (*parts[:-1], end_offset, 0)):
            self.must_save = True
        if not self._is_all:
            self._windows.doubt(self._now_ms)

    def _cut(self, offset: int, parts_of: Callable[[Parts], Parts]) -> bool:
        """Note what there is of a request that should go on after an offset; return whether one should."""
        if self._last is None or self._last[2][-1] <= offset:
            return False
        producer_id, sequence, parts = self._last
        self._windows.note(producer_id, sequence, parts_of(parts), self._now_ms)
        self._last = None
        return True
