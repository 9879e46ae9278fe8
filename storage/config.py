"""Every tunable of engine and leases with its unit, its default and its relationships, in one place.

Defaults are a RocketMQ 5 broker's unless the comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from storage.format.consume_entry import UNIT_SIZE

FlushMode = Literal["sync", "async"]
EVERY_HOUR: Final = frozenset(range(24))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How a store is laid out on disk and how it writes; sizes are bytes, times milliseconds."""

    commit_log_file_size: int = 1 << 30
    consume_queue_file_size: int = 300_000 * UNIT_SIZE
    index_slot_count: int = 5_000_000
    index_entry_count: int = 20_000_000

    flush_mode: FlushMode = "async"
    flush_interval_ms: int = 500
    transient_pool: bool = False
    transient_pool_size: int = 5  # buffers of one commit log file each
    transient_pool_directory: str = "/dev/shm"  # noqa: S108  must outlive kill -9, not a reboot
    commit_interval_ms: int = 10  # 200 in a broker; 10 is what its own benchmark sets

    store_host: str = "127.0.0.1:10911"  # address written into records and message ids
    body_size_max: int = 4 << 20
    append_property_crc: bool = True  # a broker's default is off; the file stays a broker's
    unflushed_bytes_max: int = 256 << 20  # appended and not yet synced; above it StoreBusy

    queue_flush_interval_ms: int = 1_000
    queue_flush_bytes: int = 256 << 20  # or earlier, after this much dispatched log
    stage_timeout_ms: int = 86_400_000  # of stages that nobody commits
    transaction_timeout_ms: int = 6_000  # of a half message, before its producer is asked
    transaction_check_interval_ms: int = 30_000  # between two such questions
    transaction_check_max: int = 15  # of them, before it is given up
    transaction_age_max_ms: int = 72 * 3_600_000  # of a half message, before it is given up
    transaction_pending_max: int = 1_000_000  # half messages; above it StoreBusy
    mapped_files_max: int = (
        64  # lazily mapped files per directory kind before the oldest is unmapped
    )
    warm_ahead_bytes: int = 64 << 20  # pages touched ahead of the writer
    scrub_interval_ms: int = 7 * 86_400_000  # between two readings of all of the store; 0: none
    scrub_bytes_per_s: int = 16 << 20  # of such a reading
    retention_ms: int = 0  # of log files; 0: nothing is deleted. 72 hours in a broker
    retention_delete_hours: str = "04"  # of the day, in which expired files go; ";" between several
    retention_clean_percent: int = 75  # of the disk; above it they go at any hour
    retention_force_percent: int = 85  # above it the oldest files go, whatever their age
    retention_refuse_percent: int = 90  # above it nothing is appended, until force_percent
    warm_cache_bytes_max: int = 0  # this log file and the next are warmed whole if both fit in it

    def __post_init__(self) -> None:
        """Refuse values and combinations that cannot work, naming the field and both numbers."""
        for name in (
            "commit_log_file_size", "consume_queue_file_size", "index_slot_count", "index_entry_count",
            "flush_interval_ms", "transient_pool_size", "commit_interval_ms", "body_size_max",
            "unflushed_bytes_max", "queue_flush_interval_ms", "queue_flush_bytes", "mapped_files_max",
            "stage_timeout_ms", "scrub_bytes_per_s", "transaction_timeout_ms",
            "transaction_check_interval_ms", "transaction_check_max", "transaction_age_max_ms",
            "transaction_pending_max",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        _check_retention(self)
        if self.flush_mode not in ("sync", "async"):
            raise ValueError(f"flush_mode must be sync or async, not {self.flush_mode!r}")
        if self.consume_queue_file_size % UNIT_SIZE:
            raise ValueError(
                f"consume_queue_file_size {self.consume_queue_file_size} is not a multiple of {UNIT_SIZE}"
            )


def _check_retention(config: StoreConfig) -> None:
    if config.retention_ms < 0:
        raise ValueError(f"retention_ms must be at least 0, not {config.retention_ms}")
    try:
        parse_delete_hours(config.retention_delete_hours)
    except ValueError as error:
        raise ValueError(f"retention_delete_hours {error}") from None
    percents = {
        name: getattr(config, f"retention_{name}_percent") for name in ("clean", "force", "refuse")
    }
    if not 0 < percents["clean"] <= percents["force"] <= percents["refuse"] <= 100:
        raise ValueError(
            "retention_clean_percent, retention_force_percent and retention_refuse_percent must"
            f" rise from 1 to 100, not {', '.join(map(str, percents.values()))}"
        )


def parse_delete_hours(text: str) -> frozenset[int]:
    """Return the hours that a broker's ``deleteWhen`` names: ``04``, or several, ``02;04``; ``*``: all.

    Raises ValueError.
    """
    if text.strip() == "*":
        return EVERY_HOUR
    hours = [int(part) for part in text.split(";") if part.strip()]
    if not hours or not all(0 <= hour <= 23 for hour in hours):
        raise ValueError(
            f"must be hours of the day from 0 to 23, such as 04 or 02;04, not {text!r}"
        )
    return frozenset(hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """Tunables of leases; times in milliseconds."""

    lease_ms: int = 60_000
    """Of a receive that names no time, and of each renewal."""
    renewed_max_ms: int = 3 * 60 * 60_000
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
    """Messages of one queue that wait for their message group; then the queue waits."""
    orderly_rows_max: int = 65_536
    """Messages of one queue of an orderly group; then only what was handed out before is."""
    rows_max: int = 8_000_000
    """Messages of all groups under lease or waiting; then only what was handed out before is."""
    attempt_ids_max: int = 1_024
    """Receives of an orderly group that are known by their attempt id."""
