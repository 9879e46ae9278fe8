"""Copies of records of the log, made ready to be appended: what a store writes on its own behalf."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.record_layout import SYS_FLAG_STORE_HOST_V6
from storage.kernels.batch import group_by_queue, placed_size
from storage.kernels.columns import (
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    STOP_END,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    fields_at,
    new_rows,
)
from storage.kernels.copies import (
    PAIRS_AT,
    PAIRS_SIZE,
    TARGET_FLAG,
    TARGET_TIMES,
    TOPIC_AT,
    TOPIC_SIZE,
    copies_size_max,
    copy_records,
    new_targets,
)
from storage.kernels.scan import scan_records
from storage.log.batches import Prepared, QueueKey

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.kernels.columns import ByteArray, Rows

Item = TypeVar("Item")
Targets = npt.NDArray[np.int64]
"""Of ``storage.kernels.copies``."""


def in_runs(
    items: Iterable[Item], size_of: Callable[[Item], int], bytes_max: int
) -> Iterator[list[Item]]:
    """Yield items in runs that go into one batch: of so many bytes at most, but for a larger item."""
    run: list[Item] = []
    total = 0
    for item in items:
        size = size_of(item)
        if run and total + size > bytes_max:
            yield run
            run, total = [], 0
        run.append(item)
        total += size
    if run:
        yield run


def scanned(records: Sequence[ByteArray]) -> tuple[ByteArray, Rows]:
    """Return intact records joined, and their rows."""
    source = np.concatenate(records)
    rows = new_rows(len(records))
    count, _, stop = scan_records(source, 0, source.size, 0, 0, rows)
    assert (count, stop) == (len(records), STOP_END)
    return source, rows


def property_block(source: ByteArray, row: Rows) -> bytes:
    """Return the properties of one row's record."""
    begin = int(row[PROPERTIES_POSITION])
    return source[begin : begin + int(row[PROPERTIES_LENGTH])].tobytes()


def store_host_of(source: ByteArray, row: Rows) -> bytes:
    """Return the encoded store host of one row's record."""
    begin = int(row[STORE_TIMESTAMP_POSITION]) + 8
    size = IPV6_HOST_SIZE if int(row[SYS_FLAG]) & SYS_FLAG_STORE_HOST_V6 else IPV4_HOST_SIZE
    return source[begin : begin + size].tobytes()


def after_hosts(rows: Rows) -> npt.NDArray[np.int64]:
    """Return where the reconsumeTimes of records stand; the offset of a half message follows them."""
    v6 = rows[:, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6 != 0
    places: npt.NDArray[np.int64] = rows[:, STORE_TIMESTAMP_POSITION] + 8
    return places + np.where(v6, IPV6_HOST_SIZE, IPV4_HOST_SIZE)


def own_targets(source: ByteArray, rows: Rows) -> Targets:
    """Return targets with the records' own flags and reconsumeTimes, of queue 0."""
    targets = new_targets(len(rows))
    targets[:, TARGET_FLAG] = rows[:, SYS_FLAG]
    targets[:, TARGET_TIMES] = fields_at(source, after_hosts(rows), ">i4")
    return targets


def copied_to(
    topics: Sequence[bytes], pairs: Sequence[bytes], source: ByteArray, rows: Rows,
    targets: Targets, dropped: ByteArray,
) -> ByteArray:  # fmt: skip
    """Return copies as ``copied`` does, of each record for its topic and with its encoded properties added."""
    topic_sizes = np.array([len(topic) for topic in topics], np.int64)
    pair_sizes = np.array([len(each) for each in pairs], np.int64)
    ends = np.cumsum(topic_sizes + pair_sizes)
    targets[:, TOPIC_SIZE] = topic_sizes
    targets[:, PAIRS_SIZE] = pair_sizes
    targets[:, PAIRS_AT] = ends - pair_sizes
    targets[:, TOPIC_AT] = ends - pair_sizes - topic_sizes
    text = b"".join([part for pair in zip(topics, pairs, strict=True) for part in pair])
    return copied(source, rows, np.frombuffer(text, np.uint8), targets, dropped)


def copied(
    source: ByteArray, rows: Rows, text: ByteArray, targets: Targets, dropped: ByteArray
) -> ByteArray:
    """Return copies of the records in ``source`` that ``rows`` have, one after the other.

    ``storage.kernels.copies`` has what ``text``, ``targets`` and ``dropped`` are.
    """
    count = len(rows)
    copies = np.empty(copies_size_max(rows, count, targets), np.uint8)
    size = copy_records(source, rows, count, text, targets, dropped, copies)
    assert size >= 0
    return copies[:size]


def prepared_copies(engine: Engine, copies: ByteArray, count: int) -> Prepared:
    """Return ``count`` copies as a batch that an appender takes; they were never checked as a client's are."""
    rows = new_rows(count)
    scanned, _, stop = scan_records(copies, 0, copies.size, 0, 0, rows)
    assert (scanned, stop) == (count, STOP_END)
    sizes = np.empty(count, np.int64)
    append_crc = engine.config.append_property_crc
    total = placed_size(copies, rows, count, len(engine.store_host), append_crc, sizes)
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
