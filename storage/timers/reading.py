"""Parked records as they are read: what each says of itself, and where its copy goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.names import TIMER_TOPIC
from storage.kernels import timers as kernels
from storage.kernels.copies import new_targets

if TYPE_CHECKING:
    from storage.engine.parked_queue import ParkedQueue, ParkedRecords

Longs = npt.NDArray[np.int64]
ROWS_MAX: Final = 4_096  # looked at at once
BYTES_MAX: Final = 4 << 20


class Read(NamedTuple):
    """Some records, and for each the target of its copy and what it says (``storage.kernels.timers``)."""

    records: ParkedRecords
    targets: Longs
    said: Longs


def planned(records: ParkedRecords, *, now_ms: int, is_timer: bool) -> Read:
    """Return records with what they say, in the order of their rows."""
    count = len(records.rows)
    targets = new_targets(count)
    said = np.zeros((count, kernels.SAID_COLUMNS), np.int64)
    end = kernels.plan_delivery(
        records.data, records.rows, count, now_ms, is_timer, records.records_end, targets, said
    )
    assert end >= 0
    return Read(records, targets, said)


def read_through(queue: ParkedQueue, queue_offsets: Longs) -> Iterator[Read]:
    """Yield the records at ascending queue offsets, some at a time; none of them is delivered. Raises OSError."""
    left = queue_offsets
    while len(left):
        records = queue.records(
            left[:ROWS_MAX], bytes_max=BYTES_MAX, room=kernels.DELIVERY_PAIRS_MAX
        )
        yield planned(records, now_ms=0, is_timer=queue.topic == TIMER_TOPIC)
        left = left[max(records.looked_at, 1) :]
