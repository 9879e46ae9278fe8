"""Times, and places in a queue, as people type them: Unix milliseconds, ISO 8601, or so long ago.

A time in ISO 8601 without a zone is local.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, Literal

from cli.failures import CommandFailed, ExitCode
from storage.clock import SystemClock, unix_ms

OFFSET_DIGITS_MAX: Final = 12  # a longer number is Unix milliseconds
UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_time_ms(text: str, *, others: str = "") -> int:
    """Return Unix milliseconds for ``1385859600000``, ``2013-11-01T10:00:00Z`` or ``15m`` (ago).

    ``others`` is what else may stand in the text's place, for the error.
    """
    ago = re.fullmatch(r"(\d+)([smhd])", text)
    try:
        if text.isdecimal():
            return int(text)
        if ago:
            return max(SystemClock().now_ms() - int(ago[1]) * UNIT_MS[ago[2]], 0)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CommandFailed(
            f"{text!r} is not a time: give {others}Unix milliseconds, 2013-11-01T10:00:00Z,"
            " or 15m for that long ago",
            ExitCode.USAGE,
        ) from None
    try:
        return unix_ms(moment)
    except ValueError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from None


def parse_delivery_ms(text: str) -> int:
    """Return Unix milliseconds of a time of delivery. A duration is refused: it would be so long ago."""
    if re.fullmatch(r"(\d+)([smhd])", text):
        raise CommandFailed(f"--at is a time: use --delay {text}", ExitCode.USAGE)
    try:
        return parse_time_ms(text)
    except CommandFailed:
        raise CommandFailed(
            f"--at {text!r} is not a time: give 2013-11-01T10:00:00Z, or Unix milliseconds",
            ExitCode.USAGE,
        ) from None


def parse_duration_s(text: str) -> float:
    """Return seconds for ``10s``, ``15m``, ``2h`` or ``3d``."""
    given = re.fullmatch(r"(\d+)([smhd])", text)
    if not given:
        raise CommandFailed(f"{text!r} is not a duration: give 10s, 15m, 2h or 3d", ExitCode.USAGE)
    return int(given[1]) * UNIT_MS[given[2]] / 1_000


def parse_time(text: str, *, others: str = "") -> datetime:
    """Return the moment that ``parse_time_ms`` does."""
    try:
        return datetime.fromtimestamp(parse_time_ms(text, others=others) / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        raise CommandFailed(f"{text} lies beyond all calendars", ExitCode.USAGE) from None


def parse_place(text: str) -> Literal["earliest", "latest"] | int | datetime:
    """Return a place in a queue: its begin, its end, a queue offset, or a moment."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isdecimal() and len(text) <= OFFSET_DIGITS_MAX:
        return int(text)
    return parse_time(text, others="earliest, latest, a queue offset, ")


def local_time_text(timestamp_ms: int) -> str:
    """Return Unix milliseconds as a local time with its zone."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(timespec="milliseconds")
