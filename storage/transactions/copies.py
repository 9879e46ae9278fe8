"""Half messages from messages, their copies for consumers, and halves that are stored again for a check.

Body, flag, born time, born host, reconsumeTimes and all other properties stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied
from storage.errors import InvalidBatch
from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.names import GIVEN_UP_TOPIC, HALF_TOPIC
from storage.format.properties import (
    CHECK_IMMUNITY,
    CHECK_TIMES,
    HALF_MESSAGE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    PRODUCER_GROUP,
    REAL_QID,
    REAL_TOPIC,
    TRANSACTION_ID,
    encode_properties,
)
from storage.format.record_layout import (
    SYS_FLAG_COMMITTED,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import (
    COMMIT_OFFSET,
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    STOP_END,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
    new_rows,
)
from storage.kernels.copies.records import (
    BLOCK_SIZE_MAX,
    PAIRS_AT,
    PAIRS_SIZE,
    TARGET_FLAG,
    TARGET_PREPARED,
    TARGET_QUEUE,
    TARGET_TIMES,
    TOPIC_AT,
    TOPIC_SIZE,
    dropped_names,
    new_targets,
)
from storage.kernels.scan import scan_records

if TYPE_CHECKING:
    from storage.engine.copies import Targets
    from storage.kernels.columns import ByteArray, Rows
    from storage.log.batches import Prepared

_LIGHT: Final = (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)
_DROPPED: Final = dropped_names(_LIGHT)
_DROPPED_AGAIN: Final = dropped_names((*_LIGHT, CHECK_TIMES))
_HALF_TOPIC: Final = HALF_TOPIC.encode()


def halves_of(
    sent: Prepared, transaction_ids: Sequence[str], chosen: Sequence[int], *, immunity_s: int
) -> ByteArray:
    """Return half messages for the ``chosen`` rows of a checked batch, to be placed.

    ``transaction_ids`` go with ``chosen``. Raises InvalidBatch if a record's properties get too long.
    """
    rows = np.ascontiguousarray(sent.rows[list(chosen)])
    pairs = [
        _half_pairs(sent, row, transaction_id, immunity_s)
        for row, transaction_id in zip(chosen, transaction_ids, strict=True)
    ]
    for row, added in zip(chosen, pairs, strict=True):
        if int(sent.rows[row, PROPERTIES_LENGTH]) + len(added) > BLOCK_SIZE_MAX:
            raise InvalidBatch(row, "properties: too long for a message of a transaction")
    targets = _targets(sent.data, rows)
    return copied(
        sent.data, rows, _text([_HALF_TOPIC] * len(pairs), pairs, targets), targets, _DROPPED
    )


def _half_pairs(sent: Prepared, row: int, transaction_id: str, immunity_s: int) -> bytes:
    topic, queue_id = sent.queues[int(sent.group_of[row])]
    begin = int(sent.rows[row, PROPERTIES_POSITION])
    block = sent.data[begin : begin + int(sent.rows[row, PROPERTIES_LENGTH])].tobytes()
    name = topic.decode()
    pairs = {
        HALF_MESSAGE: "true",
        TRANSACTION_ID: transaction_id,
        REAL_TOPIC: name,
        REAL_QID: str(queue_id),
    }
    group = f"{PRODUCER_GROUP}\x01".encode()
    if not block.startswith(group) and b"\x02" + group not in block:
        pairs[PRODUCER_GROUP] = name
    if immunity_s:
        pairs[CHECK_IMMUNITY] = str(immunity_s)
    return encode_properties(pairs)


def committed_copies(halves: Sequence[ByteArray], queues: Sequence[tuple[str, int]]) -> ByteArray:
    """Return copies of half messages for consumers, to be placed in the topic and queue of each."""
    source, rows = _scanned(halves)
    targets = _targets(source, rows)
    targets[:, TARGET_FLAG] |= SYS_FLAG_COMMITTED
    targets[:, TARGET_PREPARED] = rows[:, COMMIT_OFFSET]
    targets[:, TARGET_QUEUE] = [queue_id for _, queue_id in queues]
    topics = [topic.encode() for topic, _ in queues]
    return copied(source, rows, _text(topics, [b""] * len(topics), targets), targets, _DROPPED)


def halves_again(halves: Sequence[ByteArray], check_counts: Sequence[int]) -> ByteArray:
    """Return half messages with other counts of checks, to be placed."""
    source, rows = _scanned(halves)
    targets = _targets(source, rows)
    pairs = [encode_properties({CHECK_TIMES: str(count)}) for count in check_counts]
    text = _text([_HALF_TOPIC] * len(pairs), pairs, targets)
    return copied(source, rows, text, targets, _DROPPED_AGAIN)


def given_up_copies(halves: Sequence[ByteArray]) -> ByteArray:
    """Return copies of half messages that nobody ended, to be placed; each names its half, unlike a broker's."""
    return committed_copies(halves, [(GIVEN_UP_TOPIC, 0)] * len(halves))


def _scanned(records: Sequence[ByteArray]) -> tuple[ByteArray, Rows]:
    source = np.concatenate(records)
    rows = new_rows(len(records))
    scanned, _, stop = scan_records(source, 0, source.size, 0, 0, rows)
    assert (scanned, stop) == (len(records), STOP_END)
    return source, rows


def _targets(source: ByteArray, rows: Rows) -> Targets:
    """Return targets with the records' own flags, but for transactions, and reconsumeTimes; queue 0."""
    targets = new_targets(len(rows))
    targets[:, TARGET_FLAG] = rows[:, SYS_FLAG] & ~SYS_FLAG_TRANSACTION_MASK
    v6 = rows[:, SYS_FLAG] & SYS_FLAG_STORE_HOST_V6 != 0
    at = rows[:, STORE_TIMESTAMP_POSITION] + 8 + np.where(v6, IPV6_HOST_SIZE, IPV4_HOST_SIZE)
    targets[:, TARGET_TIMES] = source[at[:, None] + np.arange(4)].view(">i4")[:, 0]
    return targets


def _text(topics: Sequence[bytes], pairs: Sequence[bytes], targets: Targets) -> ByteArray:
    """Return the text that targets point into, and have them do so."""
    topic_sizes = np.array([len(topic) for topic in topics], np.int64)
    pair_sizes = np.array([len(each) for each in pairs], np.int64)
    ends = np.cumsum(topic_sizes + pair_sizes)
    targets[:, TOPIC_SIZE] = topic_sizes
    targets[:, PAIRS_SIZE] = pair_sizes
    targets[:, PAIRS_AT] = ends - pair_sizes
    targets[:, TOPIC_AT] = ends - pair_sizes - topic_sizes
    parts = [part for pair in zip(topics, pairs, strict=True) for part in pair]
    return np.frombuffer(b"".join(parts), np.uint8)
