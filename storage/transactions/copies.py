"""Half messages from messages, their copies for consumers, and halves that are stored again for a check.

Body, flag, born time, born host, reconsumeTimes and all other properties stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied_to, own_targets, property_block, scanned
from storage.errors import InvalidBatch
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
    SYS_FLAG_TRANSACTION_MASK,
)
from storage.kernels.columns import COMMIT_OFFSET, PROPERTIES_LENGTH
from storage.kernels.copies import (
    BLOCK_SIZE_MAX,
    TARGET_FLAG,
    TARGET_PREPARED,
    TARGET_QUEUE,
    dropped_names,
)

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
    return copied_to([_HALF_TOPIC] * len(pairs), pairs, sent.data, rows, targets, _DROPPED)


def _half_pairs(sent: Prepared, row: int, transaction_id: str, immunity_s: int) -> bytes:
    topic, queue_id = sent.queues[int(sent.group_of[row])]
    block = property_block(sent.data, sent.rows[row])
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
    source, rows = scanned(halves)
    targets = _targets(source, rows)
    targets[:, TARGET_FLAG] |= SYS_FLAG_COMMITTED
    targets[:, TARGET_PREPARED] = rows[:, COMMIT_OFFSET]
    targets[:, TARGET_QUEUE] = [queue_id for _, queue_id in queues]
    topics = [topic.encode() for topic, _ in queues]
    return copied_to(topics, [b""] * len(topics), source, rows, targets, _DROPPED)


def halves_again(halves: Sequence[ByteArray], check_counts: Sequence[int]) -> ByteArray:
    """Return half messages with other counts of checks, to be placed."""
    source, rows = scanned(halves)
    pairs = [encode_properties({CHECK_TIMES: str(count)}) for count in check_counts]
    targets = _targets(source, rows)
    return copied_to([_HALF_TOPIC] * len(pairs), pairs, source, rows, targets, _DROPPED_AGAIN)


def given_up_copies(halves: Sequence[ByteArray]) -> ByteArray:
    """Return copies of half messages that nobody ended, to be placed; each names its half, unlike a broker's."""
    return committed_copies(halves, [(GIVEN_UP_TOPIC, 0)] * len(halves))


def _targets(source: ByteArray, rows: Rows) -> Targets:
    """Return the records' own targets, without the bits of transactions."""
    targets = own_targets(source, rows)
    targets[:, TARGET_FLAG] &= ~SYS_FLAG_TRANSACTION_MASK
    return targets
