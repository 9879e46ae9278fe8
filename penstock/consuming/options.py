"""Options of a consumer and of a subscription."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.calls.offsets import Position
from penstock.consuming.damaged import OnDamaged


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """The queues to consume, their starts, and the limits."""

    topic: str
    group: str = ""
    queues: tuple[int, ...] | None = None
    start: Position | int = "earliest"
    tag: str = ""
    follow: bool = True
    auto_commit: bool = True
    commit_interval_ms: int = 1_000
    max_bytes: int = 0
    wait_ms: int = 10_000
    timeout_s: float = 10.0
    on_damaged: OnDamaged | None = None
    by_range: bool = False  # all records of an answer together in the place of each


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """The topic and group of a subscription, its filter and its limits."""

    topic: str
    group: str
    tag: str = ""
    sql: str = ""
    prefetch: int = 512
    prefetch_bytes: int = 8 << 20
    lease_ms: int = 30_000
    wait_ms: int = 10_000
    idle_s: float | None = None
    timeout_s: float = 10.0
    on_damaged: OnDamaged | None = None
