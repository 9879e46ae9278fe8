"""Turning bytes from a client into a batch that can be placed: checked, grouped, measured.

All of it happens before the append lock is taken, in buffers of the calling thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import InvalidBatch
from storage.format.producer_sequence import SEQUENCE_PROPERTY_SIZE
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.kernels.batch import QUEUES_COLUMN_COUNT, check_batch
from storage.kernels.columns import (
    BODY_LENGTH,
    POSITION,
    PROPERTIES_LENGTH,
    STOP_END,
    STOP_ROWS_FULL,
    new_rows,
    stop_text,
)

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray

ROWS_FIRST: Final = 1_024
UNLIMITED: Final = 1 << 62  # queues of a batch
# Of a record's properties, where the store has to say beside them whose it is, with a separator.
TELLING_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - SEQUENCE_PROPERTY_SIZE - PROPERTY_CRC_SIZE - 1

QueueKey = tuple[bytes, int]  # topic, queue id

SEND_CHECK: ContextVar[Callable[[set[str]], None] | None] = ContextVar("send_check", default=None)
"""Raises for a topic that the sender of the call that runs may not use; None where anybody may use all."""


def check_sends(topics: set[str]) -> None:
    """Ask it, before anything is told about the topics or stored."""
    check = SEND_CHECK.get()
    if check is not None:
        check(topics)


class Prepared(NamedTuple):
    """A checked batch. ``queues[g]``, ``sizes[g]`` and ``queue_bytes[g]`` say which queue group g is and how long.

    ``placed_rows`` has room for the rows of placed records, where they are asked for. Of one that ``tells``
    ``placed_size`` has room for whose it is.
    """

    data: ByteArray
    rows: npt.NDArray[np.int64]
    placed_rows: npt.NDArray[np.int64]
    record_count: int
    group_of: npt.NDArray[np.int64]
    queues: list[QueueKey]
    sizes: list[int]
    queue_bytes: list[int]  # once placed; together ``placed_size``
    placed_size: int
    features: int = 0  # HAS_* bits of its records
    tells: bool = False

    def telling(self) -> Prepared:
        """Return the batch with room for whose it is; without, if its first record has none."""
        if not has_room(self.rows):
            return self
        first, *others = self.queue_bytes
        return self._replace(
            queue_bytes=[first + SEQUENCE_PROPERTY_SIZE, *others],
            placed_size=self.placed_size + SEQUENCE_PROPERTY_SIZE, tells=True,
        )  # fmt: skip


def first_rows(batch: Prepared, parts: Sequence[memoryview]) -> npt.NDArray[np.int64] | None:
    """Return the first row of each part of a batch that joins them.

    None unless each part has whole records, one at least, of one queue.
    """
    begins = list(accumulate(map(len, parts), initial=0))[:-1]
    rows, group_of = batch.rows[: batch.record_count], batch.group_of[: batch.record_count]
    firsts = np.searchsorted(rows[:, POSITION], begins)
    if not np.diff(firsts, append=len(rows)).all() or rows[firsts, POSITION].tolist() != begins:
        return None
    groups = group_of[firsts]
    lowest, highest = np.minimum.reduceat(group_of, firsts), np.maximum.reduceat(group_of, firsts)
    return firsts if (lowest == groups).all() and (highest == groups).all() else None


def has_room(rows: npt.NDArray[np.int64]) -> bool:
    """Whether the first record can say whose it is, beside its own properties."""
    return rows.item(0, PROPERTIES_LENGTH) <= TELLING_SIZE_MAX


class _Arrays(NamedTuple):
    rows: npt.NDArray[np.int64]
    placed_rows: npt.NDArray[np.int64]
    group_of: npt.NDArray[np.int64]
    first_row: npt.NDArray[np.int64]
    group_size: npt.NDArray[np.int64]
    placed_sizes: npt.NDArray[np.int64]
    queues: npt.NDArray[np.int64]

    @classmethod
    def of(cls, capacity: int) -> _Arrays:
        return cls(
            rows=new_rows(capacity),
            placed_rows=new_rows(capacity),
            group_of=np.empty(capacity, np.int64),
            first_row=np.empty(capacity, np.int64),
            group_size=np.empty(capacity, np.int64),
            placed_sizes=np.empty(capacity, np.int64),
            queues=np.empty((capacity, QUEUES_COLUMN_COUNT), np.int64),
        )


class _Buffers(threading.local):
    """Arrays of one thread, grown as needed."""

    def __init__(self) -> None:
        self.arrays = _Arrays.of(ROWS_FIRST)


class BatchPreparer:
    """Checks batches. The result holds until the same thread prepares the next."""

    def __init__(self, *, body_size_max: int, store_host_size: int, append_crc: bool) -> None:
        self._body_size_max = body_size_max
        self._store_host_size = store_host_size
        self._append_crc = append_crc
        self._buffers = _Buffers()

    def prepare(self, records: bytes | bytearray | memoryview, *, tells: bool = False) -> Prepared:
        """Check every record. Raises InvalidBatch with the index of the first bad one.

        If it ``tells``, there is room for whose the batch is, unless its first record has none.
        """
        prepared = self.prepare_few(records, queues_max=len(records), tells=tells)
        assert prepared is not None  # a record has more than one byte
        return prepared

    def prepare_few(
        self, records: bytes | bytearray | memoryview, *, queues_max: int, tells: bool = False
    ) -> Prepared | None:
        """Do the same, or return None if the records are for more queues."""
        data = np.frombuffer(records, np.uint8)
        arrays = self._buffers.arrays
        rows, placed_rows, group_of, first_row, group_size, sizes, queues = arrays
        count, bad_index, stop, group_count, size, longest, features = check_batch(
            data, self._store_host_size, self._append_crc,
            rows, group_of, first_row, group_size, sizes, queues,
        )  # fmt: skip
        if stop != STOP_END:
            if stop == STOP_ROWS_FULL:
                self._buffers.arrays = _Arrays.of(len(data) // RECORD_SIZE_MIN + 1)
                return self.prepare_few(records, queues_max=queues_max, tells=tells)
            raise InvalidBatch(bad_index, stop_text(stop))
        if longest > self._body_size_max:
            raise InvalidBatch(
                int(rows[:count, BODY_LENGTH].argmax()),
                f"body: {longest} bytes; the most is {self._body_size_max}",
            )
        if size < 0:
            raise InvalidBatch(
                -1 - size,
                f"properties: with the property CRC more than {PROPERTIES_SIZE_MAX} bytes",
            )
        if count == 0:
            raise InvalidBatch(0, "the batch is empty; send at least one record")
        if group_count > queues_max:
            return None
        keys = []
        sizes_of_queues = []
        bytes_of_queues = []
        topic, topic_position = b"", -1
        for position, length, queue_id, queue_size, queue_bytes in queues[:group_count].tolist():
            if position != topic_position:
                topic, topic_position = data[position : position + length].tobytes(), position
            keys.append((topic, queue_id))
            sizes_of_queues.append(queue_size)
            bytes_of_queues.append(queue_bytes)
        check_sends({topic.decode(errors="replace") for topic, _ in keys})
        if tells and has_room(rows):
            size += SEQUENCE_PROPERTY_SIZE
            bytes_of_queues[0] += SEQUENCE_PROPERTY_SIZE
        else:
            tells = False
        return Prepared(
            data, rows, placed_rows, count, group_of, keys, sizes_of_queues, bytes_of_queues, size,
            features, tells,
        )  # fmt: skip


def highest_of_topics(keys: Sequence[QueueKey]) -> list[QueueKey]:
    """Return the queue with the highest id of each topic."""
    highest: dict[bytes, int] = {}
    for topic, queue_id in keys:
        if queue_id >= highest.get(topic, queue_id):
            highest[topic] = queue_id
    return list(highest.items())
