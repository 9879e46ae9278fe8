"""Calls about delayed messages that wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from numbers import Integral, Real

from penstock import wire
from penstock.calls.call import Call
from penstock.errors import InvalidArgument, TopicNotFound
from penstock.requests import build
from penstock.v1 import timers_pb2
from penstock.values import TimerCounts

DeliverAt = datetime | int
Delay = timedelta | float


def recall(handle: str, topic: str) -> Call[str]:
    """Have a delayed message not delivered; its unique key."""
    return Call(
        wire.RECALL,
        build(timers_pb2.RecallRequest, recall_handle=handle, topic=topic),
        lambda answer: str(answer.unique_key),
        not_found=TopicNotFound,
    )


def counts(within_s: Sequence[float]) -> Call[TimerCounts]:
    """Count what waits, and what of it is due within so many seconds."""
    edges = sorted(within_s)
    return Call(
        wire.COUNT_TIMERS,
        build(timers_pb2.CountTimersRequest, within_ms=[round(edge * 1000) for edge in edges]),
        lambda answer: TimerCounts(
            pending_count=answer.pending_count,
            next_due_ms=answer.next_due_ms,
            due_within_s=dict(zip(edges, answer.due_counts, strict=True)),
            delivered_count=answer.delivered_count,
            recalled_count=answer.recalled_count,
            topic_deleted_count=answer.topic_deleted_count,
            damaged_count=answer.damaged_count,
            repeated_count=answer.repeated_count,
        ),
    )


def deliver_at_ms(deliver_at: DeliverAt | None) -> int:
    """Return a time of delivery in Unix milliseconds, 0 for none. A time without a zone is local."""
    if deliver_at is None:
        return 0
    if isinstance(deliver_at, datetime):
        deliver_at = round(deliver_at.timestamp() * 1000)
    if not isinstance(deliver_at, Integral):
        raise InvalidArgument(
            "deliver_at: must be a datetime, or Unix milliseconds", field="deliver_at"
        )
    if deliver_at < 1:
        raise InvalidArgument("deliver_at: must be after 1970", field="deliver_at")
    return int(deliver_at)


def delay_ms(delay: Delay | None) -> int:
    """Return a delay in milliseconds, 0 for none or one that is over."""
    if delay is None:
        return 0
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    if not isinstance(seconds, Real) or not math.isfinite(seconds):
        raise InvalidArgument("delay: must be a timedelta, or seconds", field="delay")
    return max(round(seconds * 1000), 0)
