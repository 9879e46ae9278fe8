"""Copies of messages for the retry topics of groups, as a broker makes them when a lease ends.

A copy has queue 0 of ``%RETRY%GROUP_TOPIC``, one reconsumeTimes more, and all properties; where it is the
first one, 1ST_POP_TIME says when the message was handed out. A broker's copy has the broker as its born host;
ours keeps the producer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied_to, own_targets, property_block
from storage.format.properties import (
    FIRST_POP_TIME,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
)
from storage.kernels.copies import TARGET_TIMES, dropped_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.engine.writer_view import QueueRecords
    from storage.kernels.columns import ByteArray

_DROPPED: Final = dropped_names((INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
_POPPED_BEFORE: Final = f"{FIRST_POP_TIME}\x01".encode()


def retry_copies(
    records: QueueRecords, places: Sequence[int], topics: Sequence[str], pops_ms: Sequence[int]
) -> ByteArray:
    """Return copies of the records at ``places``, each for a retry topic, popped at a time in Unix ms.

    They lie one after the other, to be placed.
    """
    data, rows = records.data, np.ascontiguousarray(records.rows[list(places)])
    targets = own_targets(data, rows)
    targets[:, TARGET_TIMES] += 1
    pairs = [
        b""
        if _POPPED_BEFORE in property_block(data, row)
        else b"%b%d\x02" % (_POPPED_BEFORE, pop_ms)
        for row, pop_ms in zip(rows, pops_ms, strict=True)
    ]
    return copied_to([topic.encode() for topic in topics], pairs, data, rows, targets, _DROPPED)
