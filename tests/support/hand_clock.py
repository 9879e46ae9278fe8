"""A clock that a test moves."""

from __future__ import annotations

from storage.clock import Clock

FIRST_MS = 1_700_000_000_000


class HandClock(Clock):
    """Time stands still until a test moves it."""

    def __init__(self, now_ms: float = FIRST_MS) -> None:
        self.ms = now_ms
        self.set_ms = 0

    def now_ms(self) -> int:
        return int(self.ms) + self.set_ms

    def monotonic(self) -> float:
        return self.ms / 1e3

    def pass_ms(self, ms: float) -> None:
        self.ms += ms

    def pass_s(self, seconds: float) -> None:
        self.ms += 1_000 * seconds

    def set_by(self, ms: int) -> None:
        """Set the wall clock, forward or back."""
        self.set_ms += ms
