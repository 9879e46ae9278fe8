"""Delayed messages: when they are delivered, and those that wait."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from numbers import Real

from penstock import wire
from penstock.calls.call import Call
from penstock.calls.offsets import timestamp_ms
from penstock.calls.operation import operation
from penstock.errors import InvalidArgument
from penstock.requests import build, value_of
from penstock.v1 import timers_pb2
from penstock.values import TimerCounts

DeliverAt = datetime | int
Delay = timedelta | float


class TimerOperations:
    """Delayed messages that wait."""

    @operation
    def recall(
        self, recall_handle: str, *, topic: str = "", timeout_s: float | None = None
    ) -> Call[str]:
        """Cancel a delayed message before it is delivered; return its unique key.

        On return the recall is as durable as the writer's flush mode promises. With ``topic`` a handle of
        another topic is refused. Raises InvalidArgument for a bad handle, and FailedPrecondition (reason
        TOO_LATE_TO_RECALL) if the time of the message has come.
        """
        request = build(timers_pb2.RecallRequest, recall_handle=recall_handle, topic=topic)
        return Call(
            wire.RECALL, request, lambda answer: str(answer.unique_key), timeout_s=timeout_s
        )

    @operation
    def timers(
        self, *, within_s: Sequence[float] = (), timeout_s: float | None = None
    ) -> Call[TimerCounts]:
        """Count the delayed messages that wait, and those due within so many seconds."""
        within_ms = {edge: _milliseconds(edge, field="within_s") for edge in within_s}
        edges = sorted(within_ms)
        return Call(
            wire.COUNT_TIMERS,
            build(timers_pb2.CountTimersRequest, within_ms=[within_ms[edge] for edge in edges]),
            lambda answer: value_of(
                TimerCounts, answer, due_within_s=dict(zip(edges, answer.due_counts, strict=True))
            ),
            timeout_s=timeout_s,
        )


def deliver_at_ms(deliver_at: DeliverAt | None) -> int:
    """Return a time of delivery in Unix milliseconds, 0 for none. A time without a zone is local."""
    if deliver_at is None:
        return 0
    time_ms = timestamp_ms(deliver_at, field="deliver_at")
    if not time_ms:
        raise InvalidArgument("deliver_at: must be after 1970", field="deliver_at")
    return time_ms


def delay_ms(delay: Delay | None) -> int:
    """Return a delay in milliseconds, 0 for none or one that is over."""
    return 0 if delay is None else max(_milliseconds(delay, field="delay"), 0)


def _milliseconds(duration: Delay, *, field: str) -> int:
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(seconds, Real) or not math.isfinite(seconds):
        raise InvalidArgument(f"{field}: must be a timedelta, or seconds", field=field)
    return round(seconds * 1000)
