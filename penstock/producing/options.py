"""Options of a streaming producer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.requests import FRAME_OVERHEAD_MAX, REQUEST_BYTES_MAX

BATCH_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """A producer's batches and its bounds."""

    max_in_flight: int = 64
    linger_ms: float = 5
    batch_bytes: int = 64 << 10
    ordered: bool = True
    delivery_timeout_s: float = 30.0
    record_bytes_max: int = REQUEST_BYTES_MAX - FRAME_OVERHEAD_MAX

    def __post_init__(self) -> None:
        """Refuse values that cannot work."""
        if self.max_in_flight < 1:
            raise ValueError(f"max_in_flight must be at least 1, not {self.max_in_flight}")
        if not 1 <= self.batch_bytes <= BATCH_BYTES_MAX:
            raise ValueError(
                f"batch_bytes must be 1 to {BATCH_BYTES_MAX} bytes, not {self.batch_bytes}"
            )
        if self.linger_ms < 0:
            raise ValueError(f"linger_ms must not be negative, not {self.linger_ms}")
