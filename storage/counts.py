"""What a running store counts of its work: plain numbers that whoever shows them reads at any time.

Each object has one thread that counts, or a lock around it; readers see numbers of about the same moment.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

WORK_SECONDS: Final = (
    1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0,
    2.5, 5.0, 10.0,
)  # fmt: skip


class Histogram:
    """How many values were at most each of ``bounds``, the rest in a last count of their own, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float] = WORK_SECONDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class LatencyProbe:
    """Times how long it takes until a position reaches an offset: of one append at a time.

    The next append that is timed is the first one after the one before was reached. ``begin`` has one thread at a
    time, ``reached`` another one.
    """

    __slots__ = ("_began", "_offset", "seconds")

    def __init__(self) -> None:
        self.seconds = Histogram()
        self._offset: int | None = None
        self._began = 0.0

    def begin(self, offset: int) -> None:
        """Time from now on until ``offset`` is reached, unless another one is under way."""
        if self._offset is None:
            self._began = time.perf_counter()
            self._offset = offset  # last: from here on it may be reached

    def reached(self, offset: int) -> None:
        """Take in where the position is."""
        if self._offset is not None and offset >= self._offset:
            self.seconds.add(time.perf_counter() - self._began)
            self._offset = None
