"""Copies of records of the log, made ready to be appended: what a store writes on its own behalf."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from storage.kernels.batch import group_by_queue, placed_size
from storage.kernels.columns import QUEUE_ID, STOP_END, TOPIC_LENGTH, TOPIC_POSITION, new_rows
from storage.kernels.copies.records import copies_size_max, copy_records
from storage.kernels.scan import scan_records
from storage.log.batches import Prepared, QueueKey

if TYPE_CHECKING:
    from storage.kernels.columns import ByteArray, Rows

Targets = npt.NDArray[np.int64]
"""Of ``storage.kernels.copies.records``."""


def copied(
    source: ByteArray, rows: Rows, text: ByteArray, targets: Targets, dropped: ByteArray
) -> ByteArray:
    """Return copies of the records in ``source`` that ``rows`` have, one after the other.

    ``storage.kernels.copies.records`` has what ``text``, ``targets`` and ``dropped`` are.
    """
    count = len(rows)
    copies = np.empty(copies_size_max(rows, count, targets), np.uint8)
    size = copy_records(source, rows, count, text, targets, dropped, copies)
    assert size >= 0
    return copies[:size]


def prepared_copies(
    copies: ByteArray, count: int, *, store_host_size: int, append_crc: bool
) -> Prepared:
    """Return ``count`` copies as a batch that an appender takes; they were never checked as a client's are."""
    rows = new_rows(count)
    scanned, _, stop = scan_records(copies, 0, copies.size, 0, 0, rows)
    assert (scanned, stop) == (count, STOP_END)
    sizes = np.empty(count, np.int64)
    total = placed_size(copies, rows, count, store_host_size, append_crc, sizes)
    assert total >= 0
    group_of = np.empty(count, np.int64)
    first_row = np.empty(count, np.int64)
    group_size = np.empty(count, np.int64)
    groups = int(group_by_queue(copies, rows, count, group_of, first_row, group_size))
    return Prepared(
        copies, rows, new_rows(0), count, group_of,
        [_queue(copies, rows[row]) for row in first_row[:groups].tolist()],
        group_size[:groups].tolist(), np.bincount(group_of, sizes, groups).astype(np.int64).tolist(),
        int(total),
    )  # fmt: skip


def _queue(data: ByteArray, row: Rows) -> QueueKey:
    position, length = int(row[TOPIC_POSITION]), int(row[TOPIC_LENGTH])
    return data[position : position + length].tobytes(), int(row[QUEUE_ID])
