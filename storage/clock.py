"""Time as an argument: the engine never asks the operating system for it directly."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where the engine gets its times; a simulator is another implementation."""

    def now_ms(self) -> int:
        """Return wall-clock time in Unix milliseconds; may step backwards."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards; only differences mean anything."""
        ...


class SystemClock:
    """The operating system's clocks."""

    def now_ms(self) -> int:
        """Return wall-clock time in Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()
