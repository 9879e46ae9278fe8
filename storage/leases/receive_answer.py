"""The answer to one receive: the records of each queue that are handed out, and the receipt handles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueRebuilding
from storage.format.receipt_handle import PACKED_SIZE, encode_handles
from storage.format.record_layout import OFFSETS, QUEUE_OFFSET_POSITION
from storage.format.store_time import store_time_in
from storage.kernels.leases import (
    BEGIN,
    END,
    IS_CHOSEN,
    RECORD_COLUMNS,
    RECORD_OFFSET,
    seal_handles,
    walk_records,
)
from storage.leases.journal import Changes, JournaledQueue
from storage.leases.queues import NOWHERE, Place, StoreQueues
from storage.leases.values import DeadMessages, ReceivedBatch, ReceiveQuestion, RecordPredicate
from storage.message import Damage, PullResult, PullStatus
from storage.view.queues.records import join_pieces

Longs = npt.NDArray[np.int64]
UNITS_MAX: Final = 1 << 18  # looked at in one receive: a filter may drop all of them
PREDICATE_UNITS: Final = 16  # what a record costs of these at least that a predicate has to look at
PULLED_MIN: Final = 1_024  # records of a pull that a predicate chooses from
PULLED_BYTES_MIN: Final = 1 << 20
RECORD_RESERVE: Final = 64 << 10  # bytes of an answer that are not worth another pull


class ReceivedPart(NamedTuple):
    """Records of one queue that are handed out, in order."""

    queue: JournaledQueue
    queue_offsets: Longs
    attempts: Longs
    slices: tuple[memoryview, ...]


class ReceiveAnswer:
    """What one receive has found so far."""

    def __init__(
        self, question: ReceiveQuestion, now_ms: int, visible_at: int, owner: int, changes: Changes
    ) -> None:
        self.now_ms = now_ms
        self.visible_at = visible_at
        self.owner = owner
        self.changes = changes
        self.messages_left = question.max_messages
        self.bytes_left = question.max_bytes
        self.damaged: list[Damage] = []
        self.dead: list[DeadMessages] = []
        self.parts: list[ReceivedPart] = []
        self.units_left = UNITS_MAX
        self.leaves_some = False  # what is next is too long for it
        self.rebuilding: QueueRebuilding | None = None  # of a queue that was passed over

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be put into it."""
        return (
            self.messages_left <= 0
            or self.units_left <= 0
            or (bool(self.parts) and self.bytes_left < RECORD_RESERVE)
        )

    @contextmanager
    def passing_over(self) -> Iterator[None]:
        """Go on with the other queues where one is being rebuilt."""
        try:
            yield
        except QueueRebuilding as error:
            self.rebuilding = error

    def take(self, part: ReceivedPart) -> None:
        """Add records."""
        if len(part.queue_offsets):
            self.parts.append(part)
            self.messages_left -= len(part.queue_offsets)
            self.bytes_left -= sum(map(len, part.slices))

    def batch(self, salt: int) -> ReceivedBatch:
        """Return the answer, with receipt handles of a group and topic.

        Raises QueueRebuilding if nothing was found and a queue was passed over.
        """
        if self.rebuilding is not None and not (self.parts or self.damaged or self.dead):
            raise self.rebuilding
        attempts = np.concatenate([np.empty(0, np.int64), *(each.attempts for each in self.parts)])
        packed = np.empty(len(attempts) * PACKED_SIZE, np.uint8)
        position = 0
        for queue, offsets, times, _ in self.parts:
            position = seal_handles(
                packed, position, offsets, times, queue.kind, queue.name.queue_id, self.now_ms, salt,
            )  # fmt: skip
        return ReceivedBatch(
            record_count=len(attempts),
            attempts=attempts.astype(np.int32),
            receipt_handles=encode_handles(packed.tobytes()),
            lease_end_ms=self.visible_at,
            slices=tuple(view for part in self.parts for view in part.slices),
            damaged=tuple(self.damaged),
            dead=tuple(self.dead),
            has_more=self.is_full or self.leaves_some,
        )


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
