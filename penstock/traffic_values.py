"""What goes in and out of a store, and how far groups are behind; counts begin with 0 at the service's start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTraffic:
    """Messages that were stored in a topic, and the bytes of their records."""

    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTraffic:
    """Messages of a topic that the consumers of a group were sent, and the bytes of the answers.

    ``group`` is "" for pulls, which name none.
    """

    topic: str
    group: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group in all queues of a topic.

    ``lag`` counts the messages that are not done: of these ``leased`` are under a lease, and ``ready`` were never
    handed out. ``done`` is the sum of the offsets before which all is done. ``oldest_ms``, Unix milliseconds, is when the
    oldest message that is not done was stored; 0 if there is none, or if that is not known.
    """

    group: str
    topic: str
    lag: int
    leased: int
    ready: int
    done: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutTraffic:
    """What consumers were sent, and where groups were at ``lags_at_ms``, Unix milliseconds."""

    sent: tuple[SentTraffic, ...]
    lags: tuple[GroupLag, ...]
    lags_at_ms: int
