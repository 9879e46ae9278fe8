"""Turning bytes from a client into a batch that can be placed: checked, grouped, measured.

All of it happens before the append lock is taken, in buffers of the calling thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidBatch
from storage.kernels.batch import group_by_queue, placed_size, validate_batch
from storage.kernels.columns import (
    BODY_LENGTH,
    QUEUE_ID,
    STOP_END,
    STOP_ROWS_FULL,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    Stop,
    new_rows,
)

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray

ROWS_FIRST: Final = 1_024
SMALLEST_RECORD: Final = 91
PROPERTIES_SIZE_MAX: Final = 32_767

QueueKey = tuple[bytes, int]  # topic, queue id


class Prepared(NamedTuple):
    """A checked batch. ``queues[g]`` and ``sizes[g]`` say which queue group g is and how long."""

    data: ByteArray
    rows: npt.NDArray[np.int64]
    placed_rows: npt.NDArray[np.int64]
    record_count: int
    group_of: npt.NDArray[np.int64]
    queues: list[QueueKey]
    sizes: list[int]
    placed_size: int


class _Buffers(threading.local):
    """Arrays of one thread, grown as needed."""

    def __init__(self) -> None:
        self.resize(ROWS_FIRST)

    def resize(self, capacity: int) -> None:
        self.rows = new_rows(capacity)
        self.placed_rows = new_rows(capacity)
        self.group_of = np.empty(capacity, np.int64)
        self.first_row = np.empty(capacity, np.int64)
        self.group_size = np.empty(capacity, np.int64)
        self.placed_sizes = np.empty(capacity, np.int64)


class BatchPreparer:
    """Checks batches. The result holds until the same thread prepares the next."""

    def __init__(self, *, body_size_max: int, store_host_size: int, append_crc: bool) -> None:
        self._body_size_max = body_size_max
        self._store_host_size = store_host_size
        self._append_crc = append_crc
        self._buffers = _Buffers()

    def prepare(self, records: bytes | bytearray | memoryview) -> Prepared:
        """Check every record. Raises InvalidBatch with the index of the first bad one."""
        data = np.frombuffer(records, np.uint8)
        if len(data) == 0:
            raise InvalidBatch(0, "the batch is empty; send at least one record")
        buffers = self._buffers
        count, bad_index, stop = validate_batch(data, buffers.rows)
        if stop == STOP_ROWS_FULL:
            buffers.resize(len(data) // SMALLEST_RECORD + 1)
            count, bad_index, stop = validate_batch(data, buffers.rows)
        if stop != STOP_END:
            raise InvalidBatch(int(bad_index), Stop(stop).text)  # type: ignore[call-arg]
        rows = buffers.rows
        longest = int(rows[:count, BODY_LENGTH].argmax())
        if rows[longest, BODY_LENGTH] > self._body_size_max:
            raise InvalidBatch(
                longest,
                f"body: {rows[longest, BODY_LENGTH]} bytes; the most is {self._body_size_max}",
            )
        group_count = group_by_queue(
            data, rows, count, buffers.group_of, buffers.first_row, buffers.group_size
        )
        size = placed_size(
            data, rows, count, self._store_host_size, self._append_crc, buffers.placed_sizes
        )
        if size < 0:
            raise InvalidBatch(
                int(-1 - size),
                f"properties: with the property CRC more than {PROPERTIES_SIZE_MAX} bytes",
            )
        return Prepared(
            data, rows, buffers.placed_rows, int(count), buffers.group_of,
            _queue_keys(data, rows.take(buffers.first_row[:group_count], axis=0)),
            buffers.group_size[:group_count].tolist(), int(size),
        )  # fmt: skip


def _queue_keys(data: ByteArray, rows: npt.NDArray[np.int64]) -> list[QueueKey]:
    """Return topic and queue id of each row."""
    view = memoryview(data)  # type: ignore[arg-type]
    keys = []
    for row in rows.tolist():
        position = row[TOPIC_POSITION]
        keys.append((bytes(view[position : position + row[TOPIC_LENGTH]]), row[QUEUE_ID]))
    return keys
