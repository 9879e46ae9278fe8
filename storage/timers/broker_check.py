"""Whose words ``config/timercheck`` has: ours, a broker's that ran since, or nobody's.

It has no checksum, and a broker's word drops what it says was delivered. So it counts only if a
broker can have written it, and wrote it after ours: with each second that it reads a broker makes
time and counter new.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from storage.format.timers.files import CHECK, decode_check

TIMER_CHECK_FILE: Final = "timercheck"
CLOCK_SLACK_MS: Final = 60_000  # by which a broker's clock may be ahead of ours


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """What a broker's file says: slots before ``read_ms`` are delivered, but of records from ``queue_offset`` on."""

    read_ms: int
    queue_offset: int


class OwnChecks(NamedTuple):
    """What we wrote into the file last, without the zeros at its end, and what it held before.

    A stop between the write of our progress and of the file leaves the latter.
    """

    latest: bytes
    before: bytes

    @classmethod
    def parsed(cls, document: dict[str, Any]) -> OwnChecks:
        """Return those that our progress has."""
        latest = bytes.fromhex(document["timercheck"])
        return cls(latest, bytes.fromhex(document["timercheck_before"]))


def broker_progress(held: bytes, own: OwnChecks | None, *, now_ms: int) -> BrokerProgress | None:
    """Return what a broker has written since our progress, None if the file is as we left it.

    Raises ValueError where neither is so: then our progress counts.
    """
    if own is not None and held.rstrip(b"\0") in own:
        return None
    check = decode_check(held)
    if check.read_ms > now_ms + CLOCK_SLACK_MS:
        raise ValueError(f"its time, {check.read_ms}, has not come")
    if own is not None:
        ours = decode_check(own.latest.ljust(CHECK.size, b"\0"))
        if check.timestamp_ms == ours.timestamp_ms or check.counter == ours.counter:
            raise ValueError("it is not as we left it, and no broker has written it since")
    return BrokerProgress(check.read_ms, check.queue_offset)
