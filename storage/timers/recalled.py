"""Recalls that were met, each of which takes back what was stored before it in its second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format.timer_files import SECOND_MS, out_ms
from storage.kernels.timers.delivery import DUE_MS, RECALL_KEY, RECALLS, ROLL_COUNT

Longs = npt.NDArray[np.int64]
NONE: Final = 0
_SPREAD: Final = np.int64(0x9E37_79B9_7F4A_7C15 - (1 << 64))
_ID: Final = 0  # columns
_QUEUE_OFFSET: Final = 1
_UNTIL_MS: Final = 2
_BEFORE_ALL: Final = -1


def ids_in_second(hashed: Longs, dues_ms: Longs) -> Longs:
    """Return what records of one hash that are due in one second have in common. NONE without a hash."""
    ids: Longs = hashed ^ (out_ms(dues_ms) // SECOND_MS * _SPREAD)
    return np.where(hashed == NONE, NONE, ids)


class Recalled:
    """Recalls, a row each in the order of ids: id, queue offset, and when the last message of their second is due."""

    def __init__(self, rows: Sequence[tuple[int, int, int]] = ()) -> None:
        self._rows: Longs = np.array(sorted(rows), np.int64).reshape(-1, 3)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def until_ms(self) -> int:
        """When the last message that one of them takes back is due; there is one."""
        return int(self._rows[:, _UNTIL_MS].max())

    def rows(self) -> list[tuple[int, int, int]]:
        """Return all, as they are given to a new one."""
        return [(a, b, c) for a, b, c in self._rows.tolist()]

    def add(self, said: Longs, queue_offsets: Longs) -> None:
        """Add the recalls among some records, in any order; of several of one message the last one counts."""
        places = np.flatnonzero(said[:, RECALLS] != NONE)
        if not len(places):
            return
        dues_ms = said[places, DUE_MS]
        ids = ids_in_second(said[places, RECALLS], dues_ms)
        new = np.stack((ids, queue_offsets[places], out_ms(dues_ms) + SECOND_MS), axis=1)
        rows = np.concatenate((self._rows, new))
        rows = rows[np.lexsort((rows[:, _QUEUE_OFFSET], rows[:, _ID]))]
        is_last = np.append(rows[1:, _ID] != rows[:-1, _ID], True)
        self._rows = rows[is_last]

    def takes_back(self, ids: Longs, stored_at: Longs) -> npt.NDArray[np.bool_]:
        """Return which records one of them takes back: not those that were stored after it."""
        if not len(self._rows):
            return np.zeros(len(ids), np.bool_)
        known = self._rows[:, _ID]
        places = np.minimum(np.searchsorted(known, ids), len(known) - 1)
        taken: npt.NDArray[np.bool_] = known[places] == ids
        taken &= stored_at < self._rows[places, _QUEUE_OFFSET]
        taken &= ids != NONE
        return taken

    def forget(self, next_due_ms: int | None) -> None:
        """Forget those whose messages are gone; the next pending row is due at ``next_due_ms``."""
        if len(self._rows):
            is_kept = self._rows[:, _UNTIL_MS] >= (
                np.iinfo(np.int64).max if next_due_ms is None else next_due_ms
            )
            self._rows = self._rows[is_kept]


def recallable(said: Longs, queue_offsets: Longs) -> tuple[Longs, Longs]:
    """Return for some records of the timer topic the id that a recall of each has, and when it was stored.

    What a broker rolled on was stored before each recall, wherever it lies now.
    """
    keys = np.where(said[:, RECALLS] == NONE, said[:, RECALL_KEY], NONE)
    ids = ids_in_second(keys, said[:, DUE_MS])
    return ids, np.where(said[:, ROLL_COUNT] > 0, _BEFORE_ALL, queue_offsets)
