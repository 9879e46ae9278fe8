"""Records that are in the log and not in their queues yet: what dispatch has still to come to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from storage.kernels.columns import COMMIT_OFFSET, QUEUE_OFFSET, SIZE
from storage.view.log.walk import RecordRun, walk_range
from storage.view.queues.record_queues import QueueGrouper, QueueKey, is_queued

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.view.incarnations import Incarnations
    from storage.view.store_view import StoreView


@dataclass
class UnqueuedRecords:
    """Those of one queue, in order."""

    queue_offsets: list[int] = field(default_factory=list)
    commit_offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


def unqueued_records(
    store: StoreView,
    incarnations: Incarnations,
    covered: Mapping[QueueKey, tuple[int, int]] | None = None,
) -> dict[QueueKey, UnqueuedRecords]:
    """Walk the log from where the queues end to where it may be read; return what there is, by queue.

    Records of a topic that were stored before it was deleted are in no queue. With ``covered``, the queue
    offsets that each queue's files have, the whole log is walked for records that they should have.
    """
    min_offset, end_offset, queued_offset = store.bounds
    begin_offset = queued_offset if covered is None else min_offset
    found: dict[QueueKey, UnqueuedRecords] = {}
    grouper = QueueGrouper()
    for file in store.log.entries:
        start = file.start_offset
        begin, end = max(start, begin_offset), min(file.end_offset, end_offset)
        if begin >= end:
            continue
        data = store.log.map(file, begin - start, end - start)
        for step in walk_range(data, start, begin, end):
            if not isinstance(step, RecordRun):
                continue
            queued = is_queued(step.rows)
            for group, key in enumerate(grouper.group(data, step.rows)):
                if key[0] == incarnations.deleting_topic:
                    continue
                counted = queued & (step.rows[:, COMMIT_OFFSET] >= incarnations.of(key[0]))
                mine = step.rows[counted & (grouper.group_of[: len(step.rows)] == group)]
                if covered is not None:
                    first, after = covered.get(key, (0, 0))
                    has_unit = (mine[:, QUEUE_OFFSET] >= first) & (mine[:, QUEUE_OFFSET] < after)
                    mine = mine[~has_unit | (mine[:, COMMIT_OFFSET] >= queued_offset)]
                records = found.setdefault(key, UnqueuedRecords())
                records.queue_offsets += mine[:, QUEUE_OFFSET].tolist()
                records.commit_offsets += mine[:, COMMIT_OFFSET].tolist()
                records.sizes += mine[:, SIZE].tolist()
    return {key: records for key, records in found.items() if records.queue_offsets}
