"""Groups' offsets as far as their queues go: what is committed lies in the queue's range."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from storage.errors import InvalidMessage, QueueNotFound, StoreClosed, TopicNotFound
from storage.format.names import consumer_group_problem

if TYPE_CHECKING:
    from storage.tables.consumer_offsets import ConsumerOffsets


class QueueRanges(Protocol):
    """Where queues begin and end."""

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...


class GroupProgress:
    """Commits and returns offsets; ``shows_all``: whether queues end where they will after recovery."""

    def __init__(
        self, offsets: ConsumerOffsets, ranges: QueueRanges, shows_all: Callable[[], bool]
    ) -> None:
        self._offsets = offsets
        self._ranges = ranges
        self._shows_all = shows_all

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> int:
        """Set a group's progress, clamped to the queue's range; return what was set."""
        problem = consumer_group_problem(group)
        if problem:
            raise InvalidMessage("group", problem)
        high = self._ranges.max_offset(topic, queue_id)
        low = self._ranges.min_offset(topic, queue_id)
        queue_offset = min(max(queue_offset, low), high)
        self._offsets.commit(group, topic, queue_id, queue_offset)
        return queue_offset

    def of_queue(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return a group's progress in a queue, at most the queue's end; None if it has none."""
        offset = self._offsets.fetch(group, topic, queue_id)
        return None if offset is None else self._within(topic, queue_id, offset)

    def of_group(
        self, group: str, is_wanted: Callable[[], bool] = lambda: True
    ) -> dict[str, dict[int, int]]:
        """Return a group's progress by topic and queue id, each at most its queue's end.

        ``is_wanted`` is asked before each queue: raises StoreClosed once it says no.
        """
        found: dict[str, dict[int, int]] = {}
        for topic, offsets in self._offsets.fetch_group(group).items():
            of_topic = found[topic] = {}
            for queue_id, offset in offsets.items():
                if not is_wanted():
                    raise StoreClosed("nobody waits for the offsets any more")
                of_topic[queue_id] = self._within(topic, queue_id, offset)
        return found

    def _within(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return an offset, or the end of its queue if it lies after that: the writer's next start lowers it."""
        if not self._shows_all():
            return queue_offset  # the writer is to recover more than is shown now
        try:
            return min(queue_offset, self._ranges.max_offset(topic, queue_id))
        except (TopicNotFound, QueueNotFound):
            return queue_offset
