"""Times as the wire says them, of years 1970 to 9999, and as records do, in any 64 bits."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

TIME_MS_MAX: Final = 253_402_300_799_999


def milliseconds_of(timestamp: Timestamp, otherwise_ms: int) -> int:
    """Return Unix milliseconds, ``otherwise_ms`` for a time before 1970 or after 9999."""
    if not 0 <= timestamp.seconds <= TIME_MS_MAX // 1_000:
        return otherwise_ms
    return timestamp.seconds * 1_000 + max(0, min(timestamp.nanos, 999_999_999)) // 1_000_000


def fill(timestamp: Timestamp, time_ms: int) -> None:
    """Set a time of the wire to Unix milliseconds, or to the nearest that it can say."""
    seconds, milliseconds = divmod(max(0, min(time_ms, TIME_MS_MAX)), 1_000)
    timestamp.seconds, timestamp.nanos = seconds, milliseconds * 1_000_000
