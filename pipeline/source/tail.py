"""The part of a log that its queues do not cover yet, sorted by queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipeline.files.walk import ROWS_MAX, Run, walk
from pipeline.source.plan import QueueKey, Tail
from storage.format.record_layout import (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import (
    COMMIT_OFFSET,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    ByteArray,
    Rows,
)

if TYPE_CHECKING:
    from storage.view.incarnations import Incarnations
    from storage.view.store_view import StoreView


class Grouper:
    """Numbers the queues of a run of rows; buffers are made once."""

    def __init__(self) -> None:
        self.group_of = np.empty(ROWS_MAX, np.int64)
        self.first_row = np.empty(ROWS_MAX, np.int64)
        self.group_size = np.empty(ROWS_MAX, np.int64)

    def group(self, data: ByteArray, rows: Rows) -> list[QueueKey]:
        """Fill ``group_of`` and return the queue of each group."""
        count = int(
            group_by_queue(
                data, rows, len(rows), self.group_of, self.first_row, self.group_size
            )
        )  # fmt: skip
        return [queue_of(data, rows[row]) for row in self.first_row[:count].tolist()]


def queue_of(data: ByteArray, row: Rows) -> QueueKey:
    """Return topic and queue id of a row."""
    at = int(row[TOPIC_POSITION])
    topic = data[at : at + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")
    return topic, int(row[QUEUE_ID])


def is_queued(rows: Rows) -> npt.NDArray[np.bool_]:
    """Tell which records belong into their queues: not prepared, not rolled back."""
    kind = rows[:, SYS_FLAG] & SYS_FLAG_TRANSACTION_MASK
    queued: npt.NDArray[np.bool_] = (kind != SYS_FLAG_PREPARED) & (kind != SYS_FLAG_ROLLBACK)
    return queued


def read_tails(store: StoreView, incarnations: Incarnations) -> dict[QueueKey, Tail]:
    """Walk from where the queues end to where the log may be read.

    Records of a topic that were stored before it was deleted are in no queue.
    """
    _, end_offset, queued_offset = store.bounds
    tails: dict[QueueKey, Tail] = {}
    grouper = Grouper()
    for file in store.log.entries:
        start = file.start_offset
        begin, end = max(start, queued_offset), min(file.end_offset, end_offset)
        if begin >= end:
            continue
        data = store.log.map(file, begin - start, end - start)
        for step in walk(data, start, begin, end):
            if not isinstance(step, Run):
                continue
            queued = is_queued(step.rows)
            for group, key in enumerate(grouper.group(data, step.rows)):
                if key[0] == incarnations.deleting_topic:
                    continue
                counted = queued & (step.rows[:, COMMIT_OFFSET] >= incarnations.of(key[0]))
                mine = step.rows[counted & (grouper.group_of[: len(step.rows)] == group)]
                tail = tails.setdefault(key, Tail())
                tail.queue_offsets += mine[:, QUEUE_OFFSET].tolist()
                tail.commit_offsets += mine[:, COMMIT_OFFSET].tolist()
                tail.sizes += mine[:, SIZE].tolist()
    return {key: tail for key, tail in tails.items() if tail.queue_offsets}
