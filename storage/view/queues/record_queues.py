"""Which queue each record of a run belongs to, and whether it is in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from storage.format.record_layout import (
    SYS_FLAG_PREPARED,
    SYS_FLAG_ROLLBACK,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import (
    QUEUE_ID,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    ByteArray,
    Rows,
)
from storage.view.log.walk import RANGE_ROWS_MAX

QueueKey = tuple[str, int]
"""Topic and queue id."""


class QueueGrouper:
    """Numbers the queues of a run of rows; buffers are made once."""

    def __init__(self) -> None:
        self.group_of = np.empty(RANGE_ROWS_MAX, np.int64)
        self.first_row = np.empty(RANGE_ROWS_MAX, np.int64)
        self.group_size = np.empty(RANGE_ROWS_MAX, np.int64)

    def group(self, data: ByteArray, rows: Rows) -> list[QueueKey]:
        """Fill ``group_of`` and return the queue of each group."""
        count = int(
            group_by_queue(data, rows, len(rows), self.group_of, self.first_row, self.group_size)
        )
        return [queue_of(data, rows[row]) for row in self.first_row[:count].tolist()]


def queue_of(data: ByteArray, row: Rows) -> QueueKey:
    """Return topic and queue id of a row."""
    at = int(row[TOPIC_POSITION])
    topic = data[at : at + int(row[TOPIC_LENGTH])].tobytes().decode("ascii")
    return topic, int(row[QUEUE_ID])


def is_queued(rows: Rows) -> npt.NDArray[np.bool_]:
    """Return which records belong into their queues: not prepared, not rolled back."""
    kind = rows[:, SYS_FLAG] & SYS_FLAG_TRANSACTION_MASK
    queued: npt.NDArray[np.bool_] = (kind != SYS_FLAG_PREPARED) & (kind != SYS_FLAG_ROLLBACK)
    return queued
