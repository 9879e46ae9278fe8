"""Time as an argument: the engine never asks the operating system for it directly."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_EPOCH: Final = datetime.fromtimestamp(0, UTC)


def unix_ms(moment: datetime) -> int:
    """Return the Unix millisecond of a moment; one without a zone is local.

    Raises ValueError for a moment before 1970, and for one that lies beyond the calendar in UTC.
    """
    try:
        since_epoch = moment.astimezone(UTC) - _EPOCH
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{moment.isoformat()} has no Unix time here") from None
    if since_epoch < timedelta():
        raise ValueError(f"{moment.isoformat()} is before 1970")
    return since_epoch // timedelta(milliseconds=1)


def suspended_ms() -> int:
    """Return for how long the machine has slept since its boot, where the system tells; the monotonic clock stops then."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    monotonic_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - monotonic_ns) // 1_000_000


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


class SteadyClock:
    """Unix time of its making, from then on by the monotonic clock: setting the wall clock moves nothing here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms() - self._passed_ms()

    def now_ms(self) -> int:
        """Return Unix milliseconds as the wall clock would have them if nobody had set it."""
        return self._began_ms + self._passed_ms()

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return self._clock.monotonic()

    def unix_ms(self, ms: int) -> int:
        """Return what the wall clock will show at a time of this clock, unless it is set before."""
        return ms - self.now_ms() + self._clock.now_ms()

    def _passed_ms(self) -> int:
        return round(self._clock.monotonic() * 1e3)
