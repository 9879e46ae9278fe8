"""Every tunable of the engine with its unit, its default and its relationships, in one place.

Defaults are a RocketMQ 5 broker's unless the comment says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from storage.format.consume_entry import UNIT_SIZE

FlushMode = Literal["sync", "async"]


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
    mapped_files_max: int = (
        64  # lazily mapped files per directory kind before the oldest is unmapped
    )
    warm_ahead_bytes: int = 64 << 20  # pages touched ahead of the writer
    scrub_interval_ms: int = 7 * 86_400_000  # between two readings of all of the store; 0: none
    scrub_bytes_per_s: int = 16 << 20  # of such a reading
    warm_cache_bytes_max: int = 0  # this log file and the next are warmed whole if both fit in it

    def __post_init__(self) -> None:
        """Refuse values and combinations that cannot work, naming the field and both numbers."""
        for name in (
            "commit_log_file_size", "consume_queue_file_size", "index_slot_count", "index_entry_count",
            "flush_interval_ms", "transient_pool_size", "commit_interval_ms", "body_size_max",
            "unflushed_bytes_max", "queue_flush_interval_ms", "queue_flush_bytes", "mapped_files_max",
            "stage_timeout_ms", "scrub_bytes_per_s",
        ):  # fmt: skip
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.flush_mode not in ("sync", "async"):
            raise ValueError(f"flush_mode must be sync or async, not {self.flush_mode!r}")
        if self.consume_queue_file_size % UNIT_SIZE:
            raise ValueError(
                f"consume_queue_file_size {self.consume_queue_file_size} is not a multiple of {UNIT_SIZE}"
            )
