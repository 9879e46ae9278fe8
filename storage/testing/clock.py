"""A clock whose time passes by looking at it, so that each run of a test has the same times."""

from __future__ import annotations

LOOK_S = 0.3
FIRST_S = 1_700_000_000.0


class SteppedClock:
    """Each look is a moment later than the one before; see ``storage.clock.Clock``."""

    def __init__(self) -> None:
        self._now_s = FIRST_S

    def now_ms(self) -> int:
        """Return Unix milliseconds, one more than the time before."""
        self._now_s += 0.001
        return round(self._now_s * 1000)

    def monotonic(self) -> float:
        """Return seconds, 0.3 more than the time before."""
        self._now_s += LOOK_S
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds
