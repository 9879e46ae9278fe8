"""Times, and places in a queue, as people type them: Unix milliseconds, ISO 8601, or so long ago.

Each raises ValueError, which says what to give instead.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal

from storage.clock import SystemClock, unix_ms

OFFSET_DIGITS_MAX: Final = 12  # a longer number is Unix milliseconds
UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"(\d{1,12})([smhd])")


def parse_time_ms(text: str, *, others: str = "", zone: tzinfo | None = None) -> int:
    """Return Unix milliseconds for ``1385859600000``, ``2013-11-01T10:00:00Z`` or ``15m`` (ago).

    A time in ISO 8601 that names no zone is of ``zone``, without one local. ``others`` is what else may stand in the
    text's place, for the error.
    """
    ago = _DURATION.fullmatch(text)
    if text.isascii() and text.isdecimal():
        return int(text)
    if ago:
        return max(SystemClock().now_ms() - int(ago[1]) * UNIT_MS[ago[2]], 0)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time: give {others}Unix milliseconds, 2013-11-01T10:00:00Z,"
            " or 15m for that long ago"
        ) from None
    return unix_ms(moment if moment.tzinfo or zone is None else moment.replace(tzinfo=zone))


def parse_duration_s(text: str) -> float:
    """Return seconds for ``10s``, ``15m``, ``2h`` or ``3d``."""
    given = _DURATION.fullmatch(text)
    if not given:
        raise ValueError(f"{text!r} is not a duration: give 10s, 15m, 2h or 3d")
    return int(given[1]) * UNIT_MS[given[2]] / 1_000


def parse_time(text: str, *, others: str = "", zone: tzinfo | None = None) -> datetime:
    """Return the moment that ``parse_time_ms`` does."""
    time_ms = parse_time_ms(text, others=others, zone=zone)
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        raise ValueError(f"{text} lies beyond all calendars") from None


def parse_place(
    text: str, *, zone: tzinfo | None = None
) -> Literal["earliest", "latest"] | int | datetime:
    """Return a place in a queue: its begin, its end, a queue offset, or a moment."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX:
        return int(text)
    return parse_time(text, others="earliest, latest, a queue offset, ", zone=zone)
