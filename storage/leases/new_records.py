"""The records of a pull, and which of them a predicate chooses."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.kernels.leases import columns
from storage.kernels.leases import records as kernels
from storage.leases.receive_answer import ReceiveAnswer
from storage.leases.values import RecordPredicate
from storage.message import PullResult

Longs = npt.NDArray[np.int64]

PULLED_MIN: Final = 1_024  # records of a pull that a predicate chooses from
PULLED_BYTES_MIN: Final = 1 << 20


def records_of(result: PullResult, *, is_orderly: bool) -> Longs:
    """Return the records of a pull as rows of ``storage.kernels.leases.records``, all of them chosen."""
    records = np.empty((result.record_count, kernels.RECORD_COLUMNS), np.int64)
    row = 0
    for view in result.slices:
        row = int(kernels.walk_records(np.frombuffer(view, np.uint8), is_orderly, records, row))
        assert row >= 0, "a pull has proved its records"
    return records


def choose(
    result: PullResult, records: Longs, predicate: RecordPredicate, answer: ReceiveAnswer
) -> PullResult:
    """Let a predicate choose; return the pull as if it had ended before the first that has no room in an answer."""
    if not len(records):
        return result
    begins = np.flatnonzero(records[:, kernels.BEGIN] == 0).tolist()
    for view, begin, end in zip(result.slices, begins, [*begins[1:], len(records)], strict=True):
        records[begin:end, columns.IS_CHOSEN] = predicate.matching(
            np.frombuffer(view, np.uint8),
            np.ascontiguousarray(records[begin:end, kernels.BEGIN]),
        )
    chosen = np.flatnonzero(records[:, columns.IS_CHOSEN])
    sizes = records[chosen, kernels.END] - records[chosen, kernels.BEGIN]
    room = int(np.searchsorted(np.cumsum(sizes), answer.bytes_left, side="right"))
    if not answer.parts:
        room = max(room, 1)
    room = min(room, answer.messages_left)
    if room >= len(chosen):
        return result
    count = int(chosen[room])
    next_offset = int(records[count, columns.RECORD_OFFSET])
    begin = int(records[count, kernels.BEGIN])
    whole = sum(each <= count for each in begins) - 1
    slices = result.slices[:whole]
    if begin:
        slices += (result.slices[whole][:begin],)
    return replace(
        result, next_offset=next_offset, record_count=count, slices=slices,
        damaged=tuple(each for each in result.damaged if each.queue_offset < next_offset),
        queue_offset_parts=(),
    )  # fmt: skip
