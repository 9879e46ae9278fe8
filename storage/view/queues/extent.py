"""How far a queue goes: its range of offsets, where its records lie, about how many bytes they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from storage.errors import StoreClosed
from storage.files.only_files import OnlyFile
from storage.format.names import LIGHT_QUEUE_PREFIX
from storage.view.incarnations import Incarnations
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.queue_files import HeadUnits, queue_head
from storage.view.queues.rebuilt_units import is_confirmed
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


class Extents:
    """Looks at queues of one store; ``incarnations`` is None where deletions are not known."""

    def __init__(
        self,
        log: CommitLogView,
        views: QueueViews,
        *,
        estimate_bytes: bool,
        incarnations: Incarnations | None,
    ) -> None:
        self._log = log
        self._views = views
        self._estimate_bytes = estimate_bytes
        self._incarnations = incarnations

    def of(
        self, queues: Sequence[tuple[str, int]], is_wanted: Callable[[], bool]
    ) -> list[QueueExtent]:
        """Look at queues one after the other.

        Raises StoreClosed once ``is_wanted``, which is asked before each, says no.
        """
        views = self._views
        extents = []
        for topic, queue_id, held in views.heads(queues):
            if not is_wanted():
                raise StoreClosed("nobody waits for the queues any more")
            extent = self._of_head(topic, queue_id, held) if isinstance(held, OnlyFile) else None
            if extent is None:
                with views.lent(topic, queue_id, among=len(queues)) as queue:
                    extent = self._of_view(queue, topic, queue_id)
            extents.append(extent)
        return extents

    def _of_head(self, topic: str, queue_id: int, file: OnlyFile) -> QueueExtent | None:
        """Return what a queue's only file says; None if that takes a closer look."""
        log = self._log
        head = queue_head(file, log.visible_offset)
        if (
            head is None
            or head.first.commit_offset < log.min_offset
            or topic.startswith(LIGHT_QUEUE_PREFIX)
            or (self._estimate_bytes and file.tail)
        ):
            return None
        count = head.end - head.begin
        if not is_confirmed(log, topic, queue_id, head.begin, head.first):
            return None
        if count > 1 and not is_confirmed(log, topic, queue_id, head.end - 1, head.last):
            return None
        mean = (
            mean_size(HeadUnits(file, head).unit, head.begin, head.end, SAMPLES)
            if self._estimate_bytes
            else 0.0
        )
        return self._extent(
            topic, queue_id, head.begin, head.end,
            commit_range=(head.first.commit_offset, head.last.commit_offset + head.last.size),
            approximate_bytes=int(mean * count),
        )  # fmt: skip

    def _of_view(self, queue: ConsumeQueueView, topic: str, queue_id: int) -> QueueExtent:
        """Look at a queue's first and last units, and at a few between them for an estimate."""
        log = self._log
        high = queue.max_offset(log.visible_offset)
        low = min(queue.min_offset(log.min_offset, high), high)
        rebuilt = queue.rebuilt
        first, last = (
            (rebuilt.agreeing(low), rebuilt.agreeing(high - 1)) if low < high else (None, None)
        )
        if first is None or last is None:
            return self._extent(topic, queue_id, low, high)
        mean = mean_size(queue.unit, low, high, SAMPLES) if self._estimate_bytes else 0.0
        return self._extent(
            topic, queue_id, low, high,
            commit_range=(first.commit_offset, last.commit_offset + last.size),
            approximate_bytes=int(mean * (high - low)),
        )  # fmt: skip

    def _extent(
        self,
        topic: str,
        queue_id: int,
        min_offset: int,
        max_offset: int,
        *,
        commit_range: tuple[int, int] | None = None,
        approximate_bytes: int = 0,
    ) -> QueueExtent:
        return QueueExtent(
            topic=topic,
            queue_id=queue_id,
            min_offset=min_offset,
            max_offset=max_offset,
            commit_range=commit_range,
            approximate_bytes=approximate_bytes,
            incarnation=None if self._incarnations is None else self._incarnations.of(topic),
        )
