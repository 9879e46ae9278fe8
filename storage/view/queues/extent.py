"""How far a queue goes: its range of offsets, where its records lie, about how many bytes they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from storage.errors import StoreClosed
from storage.view.incarnations import Incarnations
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.unit_search import mean_size
from storage.view.queues.views import QueueViews

SAMPLES: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueExtent:
    """Offsets ``[min_offset, max_offset)`` of a queue can be read.

    ``commit_range`` is from its first record to the end of its last one, None without any;
    ``approximate_bytes`` of all its records is 0 where it was not asked for. ``incarnation`` is that of
    the topic, None where deletions are not known.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    commit_range: tuple[int, int] | None = None
    approximate_bytes: int = 0
    incarnation: int | None = None


def queue_extents(
    log: CommitLogView,
    views: QueueViews,
    queues: Sequence[tuple[str, int]],
    *,
    estimate_bytes: bool,
    incarnations: Incarnations | None,
    is_wanted: Callable[[], bool],
) -> list[QueueExtent]:
    """Look at queues one after the other.

    Raises StoreClosed once ``is_wanted``, which is asked before each, says no.
    """
    extents = []
    for topic, queue_id in queues:
        if not is_wanted():
            raise StoreClosed("nobody waits for the queues any more")
        with views.lent(topic, queue_id, among=len(queues)) as queue:
            extent = _extent(
                log, queue, topic, queue_id, estimate_bytes=estimate_bytes,
                incarnation=None if incarnations is None else incarnations.of(topic),
            )  # fmt: skip
        extents.append(extent)
    return extents


def _extent(
    log: CommitLogView,
    queue: ConsumeQueueView,
    topic: str,
    queue_id: int,
    *,
    estimate_bytes: bool,
    incarnation: int | None,
) -> QueueExtent:
    """Look at a queue's first and last units, and at a few between them for an estimate."""
    high = queue.max_offset(log.visible_offset)
    low = min(queue.min_offset(log.min_offset, high), high)
    rebuilt = queue.rebuilt(log)
    first, last = (
        (rebuilt.agreeing(low), rebuilt.agreeing(high - 1)) if low < high else (None, None)
    )
    if first is None or last is None:
        return QueueExtent(
            topic=topic, queue_id=queue_id, min_offset=low, max_offset=high, incarnation=incarnation
        )
    return QueueExtent(
        topic=topic,
        queue_id=queue_id,
        min_offset=low,
        max_offset=high,
        commit_range=(first.commit_offset, last.commit_offset + last.size),
        approximate_bytes=int(mean_size(queue, low, high, SAMPLES) * (high - low))
        if estimate_bytes
        else 0,
        incarnation=incarnation,
    )
