"""Records that are in the log and not in their queues yet: what dispatch has still to come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.kernels.columns import COMMIT_OFFSET, QUEUE_OFFSET, SIZE
from storage.view.log.parts import record_runs
from storage.view.queues.record_queues import QueueGrouper, QueueKey, is_queued

if TYPE_CHECKING:
    from storage.view.incarnations import Incarnations
    from storage.view.store_view import StoreView

Int64s = npt.NDArray[np.int64]


class UnqueuedRecords(NamedTuple):
    """Those of one queue, in order."""

    queue_offsets: Int64s
    commit_offsets: Int64s
    sizes: Int64s


NO_RECORDS: Final = UnqueuedRecords(*np.empty((3, 0), np.int64))


def unqueued_records(
    store: StoreView, incarnations: Incarnations, begin_offset: int
) -> dict[QueueKey, UnqueuedRecords]:
    """Walk the log from ``begin_offset`` to where it may be read; return what there is, by queue.

    Records of a topic that were stored before it was deleted are in no queue.
    """
    parts: dict[QueueKey, list[Int64s]] = {}
    grouper = QueueGrouper()
    for run in record_runs(store.log, begin_offset, store.bounds.end_offset):
        queued = is_queued(run.rows)
        for group, key in enumerate(grouper.group(run.data, run.rows)):
            counted = queued & (run.rows[:, COMMIT_OFFSET] >= incarnations.of(key[0]))
            mine = counted & (grouper.group_of[: len(run.rows)] == group)
            if key[0] != incarnations.deleting_topic and np.any(mine):
                part = run.rows[mine][:, (QUEUE_OFFSET, COMMIT_OFFSET, SIZE)].T
                parts.setdefault(key, []).append(part)
    return {key: UnqueuedRecords(*np.concatenate(found, axis=1)) for key, found in parts.items()}
