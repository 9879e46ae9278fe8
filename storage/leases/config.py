"""Tunables of leases. Apart from what leases are made of, as settings are read by processes that have none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MS_PER_HOUR: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Tunables of leases; times in milliseconds."""

    lease_ms: int = 60_000
    """Of a receive that names no time, and of each renewal."""
    renewed_max_ms: int = 3 * MS_PER_HOUR
    """A lease that its owner renews is given back by the group's backoff after so long."""
    released_ms: int = 1_000
    """After what time messages of an owner that has gone are visible again."""
    dead_letter_retry_ms: int = 30_000
    """After what time a dead letter is asked for again that was not confirmed."""
    sync_interval_ms: int = 500
    """How often what was written of the journal is synced; 0: with each answer."""
    offsets_interval_ms: int = 5_000
    """How often groups' offsets are written to consumerOffset.json."""
    journal_bytes_max: int = 16 << 20
    """A journal is written again when it is longer than this and than what it would be then by far."""
    blocked_max: int = 4_096
    """Rows of one queue that wait for their message group; then the queue waits."""
    orderly_rows_max: int = 65_536
    """Rows of one queue of an orderly group; then only what was handed out before is."""
    rows_max: int = 8_000_000
    """Rows of all groups; then only what was handed out before is."""
    attempt_ids_max: int = 1_024
    """Receives of an orderly group that are known by their attempt id."""
