"""A cap shared out over queues in proportion to what waits in each, as Kafka's source does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

StoreQueue = TypeVar("StoreQueue")


def shares_of(
    waiting: Mapping[StoreQueue, int], cap: int, oldest: Callable[[StoreQueue], int]
) -> dict[StoreQueue, int]:
    """Return how much of ``cap`` each gets; together they get all of it, or all that waits.

    Each gets its part of the cap, rounded down; what is left goes, one by one, to those whose next
    record is the oldest. So a queue with little is served, too, when its record has waited longest.
    """
    total = sum(waiting.values())
    if total <= cap:
        return dict(waiting)
    shares = {key: cap * count // total for key, count in waiting.items()}
    left = cap - sum(shares.values())
    short = [key for key, count in waiting.items() if shares[key] < count]
    if left:
        for key in sorted(short, key=oldest)[:left]:
            shares[key] += 1
    return shares
