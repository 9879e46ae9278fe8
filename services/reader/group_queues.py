"""Where a group is in each queue of its topics, and where a reset would take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.v1 import groups_pb2
from services.reader.groups import begin_of
from services.reader.leases import ReaderLeases
from services.rpc.status import InvalidArgument
from storage.errors import TopicNotFound
from storage.reader import StoreReader
from storage.tables.groups import GroupConfig


class GroupInQueue(NamedTuple):
    """A group in one queue; queue offsets. ``leased`` and ``waiting`` were handed out and are not done."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    group_offset: int
    next_offset: int
    leased: int = 0
    waiting: int = 0

    @property
    def lag(self) -> int:
        """Messages that are not done."""
        return max(0, self.max_offset - self.next_offset) + self.leased + self.waiting


class GroupQueues:
    """Answers from a store and its leases; for threads."""

    def __init__(self, reader: StoreReader, leases: ReaderLeases) -> None:
        self._reader = reader
        self._leases = leases
        self._queues = leases.queues

    def topics_of(self, group: str) -> list[str]:
        """Return the topics in which a group has progress, by name."""
        return sorted({*self._leases.topics_of(group), *self._reader.committed_offsets(group)})

    def queue_ids(self, topic: str) -> list[int]:
        """Return the queues of a topic that may be read. Raises TopicNotFound."""
        return sorted(self._queues.queue_ids(topic))

    def progress(self, group: GroupConfig, topics: Sequence[str]) -> list[GroupInQueue]:
        """Return where a group is in each queue of some topics; those that are gone are left out."""
        leases = {
            (queue.topic, queue.queue_id): queue
            for topic in topics
            for queue in self._leases.progress(group, topic)
        }
        offsets = self._reader.committed_offsets(group.name)
        found = []
        retried = {topic for topic, _ in leases}
        for topic in sorted({*topics, *retried}):
            try:
                queue_ids = self.queue_ids(topic)
            except TopicNotFound:
                continue
            for queue_id in queue_ids:
                low, high = self._queues.bounds(topic, queue_id)
                leased = leases.get((topic, queue_id))
                if leased is not None:
                    found.append(
                        GroupInQueue(
                            topic, queue_id, low, high, leased.group_offset, leased.next_offset,
                            leased.leased_count, leased.waiting_count,
                        )
                    )  # fmt: skip
                    continue
                offset = offsets.get(topic, {}).get(queue_id)
                if offset is None:
                    offset = low if group.begin == "earliest" else high
                found.append(GroupInQueue(topic, queue_id, low, high, offset, offset))
        return found

    def target(self, request: groups_pb2.ResetGroupRequest, queue: GroupInQueue) -> int:
        """Return where a reset takes a group in a queue. Raises InvalidArgument."""
        which = request.WhichOneof("to")
        if which == "begin":
            begin = begin_of(request.begin)
            if begin is not None:
                return queue.min_offset if begin == "earliest" else queue.max_offset
        elif which == "timestamp_ms":
            return self._reader.offset_by_time(
                queue.topic, queue.queue_id, timestamp_ms=request.timestamp_ms
            )
        elif which == "queue_offset":
            if not queue.min_offset <= request.queue_offset <= queue.max_offset:
                raise InvalidArgument(
                    "queue_offset",
                    f"must lie between {queue.min_offset} and {queue.max_offset},"
                    f" and is {request.queue_offset}",
                )
            return request.queue_offset
        raise InvalidArgument("to", "give begin, timestamp_ms or queue_offset")
