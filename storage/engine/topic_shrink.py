"""Whether read queues of a topic may go: nobody reads or writes there.

Groups' progress is what ``consumerOffset.json`` has, so a message under a lease counts as unread: a group's
offset is never above the first of them. It may be a few seconds old: more counts then of a group it has;
a group that it lacks, which has not begun there or has just now, does not count. Nothing is appended
meanwhile, and all that was is dispatched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import QueuesInUse
from storage.tables.consumer_offsets import ConsumerOffsets

if TYPE_CHECKING:
    from storage.queues.queue_table import QueueTable
    from storage.tables.topics import TopicConfig

NAMED_MAX: Final = 8  # of the queues in a refusal


class QueueLag(NamedTuple):
    """How many messages a group has not read in a queue."""

    group: str
    queue_id: int
    lag: int

    def __str__(self) -> str:
        return f"group {self.group!r} has {self.lag} to read in queue {self.queue_id}"


def check_shrink(
    before: TopicConfig,
    after: TopicConfig,
    offsets: ConsumerOffsets,
    queues: QueueTable,
    min_commit_offset: int,
) -> None:
    """Raise QueuesInUse if a change takes queues away from those who read them, with who and how much."""
    count = after.read_queue_count
    if count >= before.read_queue_count:
        return
    if count < after.write_queue_count:
        problem = f"{after.write_queue_count} queues are written to and {count} would be read"
        raise QueuesInUse(before.name, f"{problem}; lower the write queues first")
    going = range(count, before.read_queue_count)
    lags = unread(before.name, going, offsets, queues, min_commit_offset)
    if lags:
        more = f", and {len(lags) - NAMED_MAX} more" if len(lags) > NAMED_MAX else ""
        named = ", ".join(map(str, lags[:NAMED_MAX])) + more
        raise QueuesInUse(before.name, f"{named}; let them be read first")


def unread(
    topic: str,
    queue_ids: range,
    offsets: ConsumerOffsets,
    queues: QueueTable,
    min_commit_offset: int,
) -> list[QueueLag]:
    """Return what each group that reads a topic has not read in some of its queues, the most first."""
    lags = []
    groups = offsets.groups_of(topic)
    for queue_id in queue_ids:
        queue = queues.known(topic, queue_id)
        if queue is None:
            continue
        first, end = queue.find_first(min_commit_offset), queue.next_offset
        for group, progress in groups.items():
            lag = end - max(progress.get(queue_id, first), first)
            if lag > 0:
                lags.append(QueueLag(group, queue_id, lag))
    return sorted(lags, key=lambda each: (-each.lag, each))
