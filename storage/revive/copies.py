"""Copies of messages for the retry topics of groups, as a broker makes them when a lease ends.

A copy has queue 0 of ``%RETRY%GROUP_TOPIC``, one reconsumeTimes more, and all properties; where it is the
first one, 1ST_POP_TIME says when the message was handed out. A broker's copy has the broker as its born host;
ours keeps the producer's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import copied
from storage.format.properties import (
    FIRST_POP_TIME,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
)
from storage.format.record_layout import SYS_FLAG_STORE_HOST_V6
from storage.kernels.columns import (
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    STORE_TIMESTAMP_POSITION,
    SYS_FLAG,
)
from storage.kernels.copies.records import (
    PAIRS_AT,
    PAIRS_SIZE,
    TARGET_FLAG,
    TARGET_TIMES,
    TOPIC_AT,
    TOPIC_SIZE,
    dropped_names,
    new_targets,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from storage.engine.parked_queue import ParkedRecords
    from storage.kernels.columns import ByteArray

_DROPPED: Final = dropped_names((INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET))
_POPPED_BEFORE: Final = f"{FIRST_POP_TIME}\x01".encode()
_STORE_TIME_SIZE: Final = 8


def retry_copies(
    records: ParkedRecords, places: Sequence[int], topics: Sequence[str], pops_ms: Sequence[int]
) -> ByteArray:
    """Return copies of the records at ``places``, each for a retry topic, popped at a time in Unix ms.

    They lie one after the other, to be placed.
    """
    data, rows = records.data, np.ascontiguousarray(records.rows[list(places)])
    targets = new_targets(len(rows))
    text = bytearray()
    for target, row, topic, pop_ms in zip(targets, rows.tolist(), topics, pops_ms, strict=True):
        target[TOPIC_AT], target[TOPIC_SIZE] = len(text), len(topic)
        text += topic.encode()
        target[TARGET_FLAG] = row[SYS_FLAG]
        host_size = 20 if row[SYS_FLAG] & SYS_FLAG_STORE_HOST_V6 else 8
        times = row[STORE_TIMESTAMP_POSITION] + _STORE_TIME_SIZE + host_size
        target[TARGET_TIMES] = int.from_bytes(data[times : times + 4].tobytes(), "big") + 1
        begin = row[PROPERTIES_POSITION]
        block = data[begin : begin + row[PROPERTIES_LENGTH]].tobytes()
        if _POPPED_BEFORE not in block:
            pair = b"%b%d\x02" % (_POPPED_BEFORE, pop_ms)
            target[PAIRS_AT], target[PAIRS_SIZE] = len(text), len(pair)
            text += pair
    return copied(data, rows, np.frombuffer(bytes(text), np.uint8), targets, _DROPPED)
