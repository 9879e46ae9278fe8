"""What a broker's ``config/timercheck`` says: how far it has delivered.

It counts where a broker ran since our last writer: it has no checksum, and drops what it says was delivered.
We write it for a broker, too; what it says then holds as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.format.timer_files import decode_check

TIMER_CHECK_FILE: Final = "timercheck"
CLOCK_SLACK_MS: Final = 60_000  # by which a broker's clock may be ahead of ours


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """What a broker's file says: slots before ``read_ms`` are delivered, but of records from ``queue_offset`` on."""

    read_ms: int
    queue_offset: int


def broker_progress(held: bytes, *, now_ms: int) -> BrokerProgress:
    """Return what the file says. Raises ValueError where no broker can have written it."""
    check = decode_check(held)
    if check.read_ms > now_ms + CLOCK_SLACK_MS:
        raise ValueError(f"its time, {check.read_ms}, has not come")
    return BrokerProgress(check.read_ms, check.queue_offset)
