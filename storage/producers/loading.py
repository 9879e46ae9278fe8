"""What a start knows of producers' requests: what was saved, and what the log has got since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.producer_windows import Parts, decode_windows, is_torn
from storage.kernels.columns import COMMIT_OFFSET, STORE_TIMESTAMP
from storage.kernels.producer_sequences import (
    BATCH_SIZE,
    BEGIN_OFFSET,
    FOUND_COLUMN_COUNT,
    find_sequences,
)
from storage.producers.windows import NOWHERE
from storage.view.log.walk import ROWS_MAX, DamagedRange, RecordRun, walk_log

if TYPE_CHECKING:
    import numpy.typing as npt

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


def _verdicts(
    run: RecordRun, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return for each range ``[begins, ends)`` whether one append can have stored all that the run has of it.

    A record begins where it ends, all records in it have one store time, and no other range begins in it.
    """
    offsets = np.append(run.rows[:, COMMIT_OFFSET], run.end_offset)
    times = run.rows[:, STORE_TIMESTAMP]
    changes = np.append(0, np.cumsum(times[1:] != times[:-1]))
    first, after = np.searchsorted(offsets, begins), np.searchsorted(offsets, ends)
    last = np.clip(after - 1, 0, len(times) - 1)
    held_ends = offsets[np.minimum(after, len(times))]
    ends_well = (held_ends == ends) | (ends > run.end_offset)
    following = np.append(begins[1:], np.iinfo(np.int64).max)
    verdicts: npt.NDArray[np.bool_] = (
        ends_well & (changes[first] == changes[last]) & (following >= ends)
    )
    return verdicts


class _Open(NamedTuple):
    """A request of which more is to come, as far as the walk has met it."""

    producer_id: int
    sequence: int
    parts: Parts
    stored_ms: int


class _Loading:
    """Requests as a walk of the log meets them."""

    def __init__(self, windows: ProducerWindows, now_ms: int, *, is_all: bool) -> None:
        """``is_all`` says that nothing before the walk is unknown."""
        self._windows = windows
        self._now_ms = now_ms
        self._is_all = is_all
        self._found = np.empty((ROWS_MAX, FOUND_COLUMN_COUNT), np.int64)
        self._open: _Open | None = None
        self.found_count = 0
        self.must_save = False

    def take(self, run: RecordRun) -> None:
        if not self._is_all:
            self._windows.doubt(min(int(run.rows[0, STORE_TIMESTAMP]), self._now_ms))
            self._is_all = True
        self._close(run.begin_offset)
        count = int(find_sequences(run.data, run.rows, self._found))
        assert count >= 0
        found = self._found[:count]
        self._go_on(run, found)
        begins = found[:, BEGIN_OFFSET]
        are_whole = _verdicts(run, begins, begins + found[:, BATCH_SIZE]).tolist()
        stored_ms = int(run.rows[-1, STORE_TIMESTAMP])
        for (producer_id, sequence, begin, size), is_whole in zip(
            found.tolist(), are_whole, strict=True
        ):
            former = self._windows.parts_of(producer_id, sequence)
            if former is not None and not is_torn(former):
                continue  # stored and known: nothing that we have written
            parts = (*(former or ())[:-1], begin, begin + size) if is_whole else NOWHERE
            self._windows.note(producer_id, sequence, parts, min(stored_ms, self._now_ms))
            self.found_count += 1
            if is_whole and begin + size > run.end_offset:
                self._open = _Open(producer_id, sequence, parts, stored_ms)

    def _go_on(self, run: RecordRun, found: npt.NDArray[np.int64]) -> None:
        """Look whether a run goes on with the request that the one before it ended in."""
        if self._open is None:
            return
        end = self._open.parts[-1]
        [is_whole] = _verdicts(run, np.array([run.begin_offset]), np.array([end])).tolist()
        begun = found[:1, BEGIN_OFFSET].tolist()
        if (
            not is_whole
            or int(run.rows[0, STORE_TIMESTAMP]) != self._open.stored_ms
            or (begun and begun[0] < end)
        ):
            self._lose_open()

    def lose(self, damaged: DamagedRange) -> None:
        """Take in damage: requests may have begun in it, and of one that it lies in nobody knows what is there."""
        self._close(damaged.begin_offset)
        self._lose_open()
        self._windows.doubt(self._now_ms)
        self.must_save = True

    def end(self, end_offset: int) -> None:
        """Take in that the log ends: what is missing of its last request is to be appended."""
        self._close(end_offset)
        if self._open is not None:
            producer_id, sequence, parts, _ = self._open
            self._windows.note(producer_id, sequence, (*parts[:-1], end_offset, 0), self._now_ms)
            self.must_save = True
        if not self._is_all:
            self._windows.doubt(self._now_ms)

    def _close(self, offset: int) -> None:
        if self._open is not None and self._open.parts[-1] <= offset:
            self._open = None

    def _lose_open(self) -> None:
        if self._open is not None:
            producer_id, sequence, _, _ = self._open
            self._windows.note(producer_id, sequence, NOWHERE, self._now_ms)
            self._open = None
