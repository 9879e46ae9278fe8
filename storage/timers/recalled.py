"""Recalls that were met, each of which takes back what was stored before it in its second."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format.timers.seconds import SECOND_MS, out_ms

Longs = npt.NDArray[np.int64]
NONE: Final = 0
_SPREAD: Final = np.int64(0x9E37_79B9_7F4A_7C15 - (1 << 64))


def recall_ids(keys: Longs, dues_ms: Longs) -> Longs:
    """Return what a message and its recall have in common: key and second. NONE without a key."""
    ids: Longs = keys ^ (out_ms(dues_ms) // SECOND_MS * _SPREAD)
    return np.where(keys == NONE, NONE, ids)


class Recalled:
    """Recalls by id: their queue offset, and when the last message of their second is due."""

    def __init__(self, rows: Iterable[tuple[int, int, int]] = ()) -> None:
        self._found = {each: (queue_offset, until_ms) for each, queue_offset, until_ms in rows}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def until_ms(self) -> int:
        """When the last message that one of them takes back is due; there is one."""
        return max(until_ms for _, until_ms in self._found.values())

    def rows(self) -> list[tuple[int, int, int]]:
        """Return all, as they are given to a new one."""
        return sorted((each, *found) for each, found in self._found.items())

    def add(self, ids: Longs, queue_offsets: Longs, dues_ms: Longs) -> None:
        """Add recalls in any order."""
        untils_ms = out_ms(dues_ms) + SECOND_MS
        for each, *found in zip(
            ids.tolist(), queue_offsets.tolist(), untils_ms.tolist(), strict=True
        ):
            queue_offset, until_ms = found
            self._found[each] = max(self._found.get(each, (0, 0)), (queue_offset, until_ms))

    def takes_back(self, ids: Longs, queue_offsets: Longs) -> npt.NDArray[np.bool_]:
        """Return which records one of them takes back: not those that were stored after it."""
        if not self._found:
            return np.zeros(len(ids), np.bool_)
        known = np.array([(each, offset) for each, offset, _ in self.rows()], np.int64)
        places = np.minimum(np.searchsorted(known[:, 0], ids), len(known) - 1)
        taken: npt.NDArray[np.bool_] = (known[places, 0] == ids) & (
            queue_offsets < known[places, 1]
        )
        taken &= ids != NONE
        return taken

    def forget(self, next_due_ms: int | None) -> None:
        """Forget those whose messages are gone; the next pending row is due at ``next_due_ms``."""
        if self._found:
            self._found = {
                each: found
                for each, found in self._found.items()
                if next_due_ms is not None and found[1] >= next_due_ms
            }
