"""Times, and places in a queue, as people type them after a command; what is none is wrong usage."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal, TypeVar

from cli.failures import CommandFailed, ExitCode
from services import times
from services.times import UNIT_MS

__all__ = [
    "UNIT_MS",
    "local_time_text",
    "parse_delivery_ms",
    "parse_duration_s",
    "parse_place",
    "parse_time_ms",
]
T = TypeVar("T")


def parse_time_ms(text: str) -> int:
    """Return Unix milliseconds for ``1385859600000``, ``2013-11-01T10:00:00Z`` or ``15m`` (ago)."""
    return _parsed(times.parse_time_ms, text)


def parse_delivery_ms(text: str) -> int:
    """Return Unix milliseconds of a time of delivery. A duration is refused: it would be so long ago."""
    if re.fullmatch(r"(\d+)([smhd])", text):
        raise CommandFailed(f"--at is a time: use --delay {text}", ExitCode.USAGE)
    try:
        return times.parse_time_ms(text)
    except ValueError:
        raise CommandFailed(
            f"--at {text!r} is not a time: give 2013-11-01T10:00:00Z, or Unix milliseconds",
            ExitCode.USAGE,
        ) from None


def parse_duration_s(text: str) -> float:
    """Return seconds for ``10s``, ``15m``, ``2h`` or ``3d``."""
    return _parsed(times.parse_duration_s, text)


def parse_place(text: str) -> Literal["earliest", "latest"] | int | datetime:
    """Return a place in a queue: its begin, its end, a queue offset, or a moment."""
    return _parsed(times.parse_place, text)


def local_time_text(timestamp_ms: int) -> str:
    """Return Unix milliseconds as a local time with its zone."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000).astimezone()
    return moment.isoformat(timespec="milliseconds")


def _parsed(parse: Callable[..., T], text: str, **how: Any) -> T:
    try:
        return parse(text, **how)
    except ValueError as error:
        raise CommandFailed(str(error), ExitCode.USAGE) from None
