"""The records of a pull: which of them a predicate chooses, their bytes, and the place of the last one."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format.record_layout import OFFSETS, QUEUE_OFFSET_POSITION
from storage.format.store_time import store_time_in
from storage.kernels.leases import (
    BEGIN,
    END,
    IS_CHOSEN,
    RECORD_COLUMNS,
    RECORD_OFFSET,
    walk_records,
)
from storage.leases.journal import JournaledQueue
from storage.leases.queues import NOWHERE, Place, StoreQueues
from storage.leases.receive_answer import ReceiveAnswer
from storage.leases.values import RecordPredicate
from storage.message import PullResult, PullStatus
from storage.view.queues.records import join_pieces

Longs = npt.NDArray[np.int64]

PULLED_MIN: Final = 1_024  # records of a pull that a predicate chooses from
PULLED_BYTES_MIN: Final = 1 << 20


def records_of(result: PullResult, *, is_orderly: bool) -> Longs:
    """Return the records of a pull as rows of ``storage.kernels.leases``, all of them chosen."""
    records = np.empty((result.record_count, RECORD_COLUMNS), np.int64)
    row = 0
    for view in result.slices:
        row = int(walk_records(np.frombuffer(view, np.uint8), is_orderly, records, row))
        assert row >= 0, "a pull has proved its records"
    return records


def choose(
    result: PullResult, records: Longs, predicate: RecordPredicate, answer: ReceiveAnswer
) -> PullResult:
    """Let a predicate choose; return the pull as if it had ended before the first that has no room in an answer."""
    if not len(records):
        return result
    begins = np.flatnonzero(records[:, BEGIN] == 0).tolist()
    for view, begin, end in zip(result.slices, begins, [*begins[1:], len(records)], strict=True):
        records[begin:end, IS_CHOSEN] = predicate.matching(
            np.frombuffer(view, np.uint8), np.ascontiguousarray(records[begin:end, BEGIN])
        )
    chosen = np.flatnonzero(records[:, IS_CHOSEN])
    sizes = records[chosen, END] - records[chosen, BEGIN]
    room = int(np.searchsorted(np.cumsum(sizes), answer.bytes_left, side="right"))
    if not answer.parts:
        room = max(room, 1)
    room = min(room, answer.messages_left)
    if room >= len(chosen):
        return result
    count = int(chosen[room])
    next_offset = int(records[count, RECORD_OFFSET])
    begin = int(records[count, BEGIN])
    whole = sum(each <= count for each in begins) - 1
    slices = result.slices[:whole]
    if begin:
        slices += (result.slices[whole][:begin],)
    return replace(
        result, next_offset=next_offset, record_count=count, slices=slices,
        damaged=tuple(each for each in result.damaged if each.queue_offset < next_offset),
        queue_offset_parts=(),
    )  # fmt: skip


def chosen_slices(slices: tuple[memoryview, ...], records: Longs) -> tuple[memoryview, ...]:
    """Return the chosen records of slices; a record's begin and end are those in its slice."""
    if records[:, IS_CHOSEN].all():
        return slices
    pieces = []
    size = at = 0
    for view in slices:
        end = at
        while end < len(records) and (end == at or records[end, BEGIN] > 0):
            end += 1
        kept = records[at:end][records[at:end, IS_CHOSEN] != 0]
        if len(kept):
            ranges = np.ascontiguousarray(kept[:, : END + 1])
            pieces.append((np.frombuffer(view, np.uint8), ranges))
            size += int((ranges[:, 1] - ranges[:, 0]).sum())
        at = end
    return join_pieces(pieces, size)


def last_place(
    result: PullResult, records: Longs, queue: JournaledQueue, store: StoreQueues
) -> Place:
    """Return where the last record that a pull has looked at lies."""
    if (
        result.status is PullStatus.FOUND
        and len(records)
        and records[-1, RECORD_OFFSET] == result.next_offset - 1
    ):
        record = result.slices[-1][int(records[-1, BEGIN]) :]
        _, commit_offset = OFFSETS.unpack_from(record, QUEUE_OFFSET_POSITION)
        return Place(commit_offset, store_time_in(record))
    if result.next_offset <= 0:
        return NOWHERE
    return store.place(queue.name.source, queue.name.queue_id, result.next_offset - 1)
