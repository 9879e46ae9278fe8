"""How far consumer groups are behind: messages that they have not had, and since when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from storage.view.store_plan import Queue, StorePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group in one topic of one store; times are Unix milliseconds.

    ``oldest_ms`` is when the first message that it has not had was stored, None if it has had all.
    ``lost`` are messages that were removed before it had them.
    """

    store: str
    group: str
    topic: str
    queues: int
    lag: int
    lost: int
    oldest_ms: int | None
    behind_ms: int
    worst_queue: int


def lags_of(plan: StorePlan) -> Iterator[GroupLag]:
    """Yield the lag of every group in every topic of a store, from the offsets on disk."""
    for (topic, group), offsets in sorted(plan.store.config_tables().offsets.items()):
        lag = lost = worst = 0
        worst_queue = -1
        oldest: int | None = None
        newest = 0
        for queue_id, offset in sorted(offsets.items()):
            queue = plan.queues.get((topic, queue_id))
            if queue is None or queue.begin >= queue.end:
                continue
            newest = max(newest, plan.timestamp(queue, queue.end - 1))
            behind = max(0, queue.end - max(offset, queue.begin))
            lost += max(0, queue.begin - offset)
            lag += behind
            if behind > worst or worst_queue < 0:
                worst, worst_queue = behind, queue_id
            if behind:
                oldest = _earlier(oldest, _time_at(plan, queue, offset))
        yield GroupLag(
            store=str(plan.store),
            group=group,
            topic=topic,
            queues=len(offsets),
            lag=lag,
            lost=lost,
            oldest_ms=oldest,
            behind_ms=max(0, newest - oldest) if oldest is not None else 0,
            worst_queue=worst_queue,
        )


def _time_at(plan: StorePlan, queue: Queue, offset: int) -> int:
    return plan.timestamp(queue, max(offset, queue.begin))


def _earlier(known: int | None, other: int) -> int:
    return other if known is None else min(known, other)
