"""What a profile finds, as values."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.jobs.profile.hot_keys import HotKey
from pipeline.jobs.profile.lags import GroupLag


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProfile:
    """One topic of all stores. ``skew`` is the fullest queue's share times the number of queues."""

    topic: str
    messages: int
    bytes: int
    body_bytes: int
    queues: int
    skew: float
    fullest_queue: str
    quantiles: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRate:
    """What was stored of one topic in the interval that begins at ``time_ms``."""

    time_ms: int
    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProfile:
    """What the log still has of one queue."""

    store: str
    topic: str
    queue_id: int
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeClass:
    """How many messages have ``[from_bytes, to_bytes)`` bytes in the log."""

    from_bytes: int
    to_bytes: int
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFigures:
    """What a profile found; all sizes are bytes in the log, all times Unix milliseconds.

    Of keys that were counted approximately, ``messages`` is at least so many, and at most
    ``hot_keys_missed`` more; ``distinct_keys`` is then within some 2 %.
    """

    stores: tuple[str, ...]
    begin_ms: int
    end_ms: int
    interval_ms: int
    messages: int
    bytes: int
    damaged_bytes: int
    topics: tuple[TopicProfile, ...]
    rates: tuple[TopicRate, ...]
    queues: tuple[QueueProfile, ...]
    size_min: int
    size_max: int
    size_quantiles: dict[str, int]
    size_classes: tuple[SizeClass, ...]
    hot_keys: tuple[HotKey, ...]
    hot_keys_missed: int
    distinct_keys: int
    keys_exact: bool
    groups: tuple[GroupLag, ...]
    seconds: float
