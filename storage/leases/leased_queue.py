"""One queue of a group: its rows, and what is read and journalled for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.format.leases import journal
from storage.format.record_layout import OFFSETS, QUEUE_OFFSET_POSITION
from storage.format.store_time import store_time_in
from storage.kernels.leases import columns
from storage.kernels.leases import records as record_kernels
from storage.kernels.leases import rows as kernels
from storage.kernels.leases.row import attempts_of, lease_end, owner_of, state_of
from storage.leases.loading import LeasedQueueName, LoadedQueue
from storage.leases.owners import NO_OWNER, Owners
from storage.leases.queues import NOWHERE, Place, StoreQueues
from storage.leases.rows import LeaseRows
from storage.leases.values import (
    DeadMessages,
    GroupRules,
    LeaseTrack,
    QueueLeases,
    TrackState,
)
from storage.message import Damage, PullResult, PullStatus
from storage.view.queues.pulled_records import join_pieces

Longs = npt.NDArray[np.int64]


NOT_SHOWN_MS: Final = 100


class Events:
    """Events of one call, for the journal."""

    __slots__ = ("count", "table")

    def __init__(self, capacity: int = 64) -> None:
        self.table: Longs = np.empty((capacity, journal.EVENT_COLUMNS), np.int64)
        self.count = 0

    def make_room(self, count: int) -> None:
        """See to it that so many events can be added."""
        if self.count + count > len(self.table):
            grown = np.empty(
                (max(self.count + count, 2 * len(self.table)), journal.EVENT_COLUMNS), np.int64
            )
            grown[: self.count] = self.table[: self.count]
            self.table = grown

    def add(self, kind: int, queue_number: int, first: int, *, place: Place = NOWHERE) -> None:
        """Add one that is not about rows."""
        self.make_room(1)
        self.table[self.count] = (
            queue_number << journal.KIND_BITS | kind, first, 0, place.commit_offset,
            place.store_timestamp_ms, 0, 0,
        )  # fmt: skip
        self.count += 1

    def encoded(self) -> bytes:
        """Return them as the payload of a block."""
        return self.table[: self.count].tobytes()


class HandedOut(NamedTuple):
    """Records of one queue that are handed out, in order."""

    queue_offsets: Longs
    attempts: Longs
    slices: tuple[memoryview, ...]


class LeasedQueue:
    """All methods run under the lock of the group's topic. Numbers of ``kind`` are those of receipt handles."""

    def __init__(
        self, number: int, kind: int, name: LeasedQueueName, rows: LeaseRows, last: Place = NOWHERE
    ) -> None:
        self.number = number
        self.kind = kind
        self.name = name
        self.rows = rows
        self.last = last
        self.begin_offset = 0  # where a group began at the latest message, or was set back to since
        self.is_checked = False  # whether the queue still holds what was handed out of it
        self.is_handed_back = False  # a broker has moved the group's offset since

    @classmethod
    def of(cls, number: int, kind: int, loaded: LoadedQueue) -> LeasedQueue:
        """Go on with a queue of a journal."""
        queue = cls(number, kind, loaded.name, loaded.rows, loaded.last)
        queue.begin_offset = loaded.begin_offset
        return queue

    @property
    def line(self) -> list[object]:
        """Its line among the names in a journal."""
        return [self.number, *self.name, self.rows.is_orderly]

    def note_next(self, events: Events) -> None:
        """Note what was handed out."""
        self.begin_offset = min(self.begin_offset, self.rows.next_offset)
        events.add(journal.NEXT, self.number, self.rows.next_offset, place=self.last)

    def note_committed(self, queue_offset: int, events: Events) -> None:
        """Note what consumerOffset.json was given."""
        self.rows.bounds[columns.COMMITTED] = queue_offset
        events.add(journal.COMMITTED_AT, self.number, queue_offset)

    def commit(self, queue_offset: int, before: int, events: Events, now_ms: int) -> None:
        """Take over an offset of consumerOffset.json that was ``before`` until now.

        A higher one acknowledges what precedes it; a lower one sets the group back.
        """
        if queue_offset >= before:
            self.drop_before(queue_offset, events, now_ms)
        else:
            self.drop_from(queue_offset, events, now_ms)
        self.note_committed(queue_offset, events)

    def reset(self, next_offset: int, last: Place, events: Events) -> None:
        """Forget all rows, and go on at a queue offset; ``last`` is the record before it."""
        self.rows.clear(next_offset)
        self.last = last
        events.add(journal.CLEARED, self.number, next_offset)
        self.note_next(events)

    def drop_before(self, queue_offset: int, events: Events, now_ms: int) -> None:
        """Take what lies before a queue offset for acknowledged."""
        live = self.rows.live
        before = int(np.searchsorted(live[:, columns.OFFSET], queue_offset))
        indexes = np.arange(before) + self.rows.bounds[columns.HEAD]
        self._change(indexes, columns.GONE, now_ms, events)
        if self.rows.next_offset < queue_offset:
            self.rows.next_offset = queue_offset
            self.last = NOWHERE
        self.note_next(events)

    def drop_from(self, queue_offset: int, events: Events, now_ms: int) -> None:
        """Forget rows from a queue offset on, and go on there."""
        live = self.rows.live
        before = int(np.searchsorted(live[:, columns.OFFSET], queue_offset))
        head = int(self.rows.bounds[columns.HEAD])
        indexes = np.arange(before, len(live)) + head
        self._change(indexes, columns.GONE, now_ms, events)
        self.rows.bounds[columns.TAIL] = min(head + before, int(self.rows.bounds[columns.TAIL]))
        self.rows.link_groups()
        self.rows.next_offset = min(self.rows.next_offset, queue_offset)
        self.last = NOWHERE
        self.note_next(events)

    def _change(self, indexes: Longs, state: int, visible_at: int, events: Events) -> None:
        events.make_room(len(indexes))
        rows = self.rows
        events.count = int(
            kernels.change_rows(
                rows.rows, rows.minima, rows.bounds, indexes, state, visible_at, self.number,
                events.table, events.count,
            )
        )  # fmt: skip

    # ---- what was handed out before

    def due(
        self, rules: GroupRules, now_ms: int, until: Longs, renewed_max_ms: int, max_messages: int
    ) -> tuple[Longs, Longs]:
        """Return indexes of rows to be handed out again, and of those to be made dead letters of."""
        rows = self.rows
        found = np.empty((max_messages, columns.DUE_COLUMNS), np.int64)
        count = kernels.due_rows(
            rows.rows, rows.minima, rows.bounds, now_ms, until, renewed_max_ms, rules.attempts_max,
            rules.backoff, found,
        )  # fmt: skip
        found = found[:count]
        dead = found[:, columns.DUE_IS_DEAD] != 0
        return (
            np.ascontiguousarray(found[~dead, columns.DUE_INDEX]),
            np.ascontiguousarray(found[dead, columns.DUE_INDEX]),
        )

    def dead_letters(
        self, queues: StoreQueues, indexes: Longs, retry_at: int, events: Events, now_ms: int,
        damaged: list[Damage],
    ) -> DeadMessages | None:  # fmt: skip
        """Name the records of rows as dead letters, None if there are none any more."""
        offsets = np.ascontiguousarray(self.rows.rows[indexes, columns.OFFSET])
        found = queues.records_at(self.name.source, self.name.queue_id, offsets, max_bytes=1 << 62)
        damaged += found.damaged
        indexes = self._looked_at(indexes, found.looked_at, now_ms)
        there = np.isin(offsets[: len(indexes)], found.queue_offsets, assume_unique=True)
        attempts = self.rows.rows[indexes[there], columns.STATE] & columns.ATTEMPTS_MAX
        self._change(indexes[there], columns.DEAD, retry_at, events)
        self._change(indexes[~there], columns.GONE, now_ms, events)
        if not len(found.queue_offsets):
            return None
        return DeadMessages(
            self.name.source, self.name.queue_id, found.queue_offsets, found.commit_offsets,
            attempts + 1,
        )  # fmt: skip

    def hand_out_again(
        self, queues: StoreQueues, indexes: Longs, max_bytes: int, now_ms: int, visible_at: int,
        owner: int, events: Events, damaged: list[Damage],
    ) -> HandedOut:  # fmt: skip
        """Lease rows once more; those whose records are gone are done."""
        rows = self.rows
        offsets = np.ascontiguousarray(rows.rows[indexes, columns.OFFSET])
        found = queues.records_at(
            self.name.source, self.name.queue_id, offsets, max_bytes=max_bytes
        )
        damaged += found.damaged
        if len(found.queue_offsets) != len(indexes):
            looked_at = self._looked_at(indexes, found.looked_at, now_ms)
            there = np.isin(offsets[: len(looked_at)], found.queue_offsets, assume_unique=True)
            indexes = looked_at[there]
            self._lease(indexes, now_ms, visible_at, owner, events)
            attempts = rows.rows[indexes, columns.STATE] & columns.ATTEMPTS_MAX
            self._change(looked_at[~there], columns.GONE, now_ms, events)
        else:
            self._lease(indexes, now_ms, visible_at, owner, events)
            attempts = rows.rows[indexes, columns.STATE] & columns.ATTEMPTS_MAX
        return HandedOut(found.queue_offsets, attempts, found.slices)

    def _looked_at(self, indexes: Longs, count: int, now_ms: int) -> Longs:
        """Return the first rows; where the queue ends before all of them, they wait for what is not shown yet.

        A writer that has just started may be about to show it.
        """
        if not count:
            self.rows.rows[indexes, columns.VISIBLE_AT] = now_ms + NOT_SHOWN_MS
        return indexes[:count]

    def _lease(
        self, indexes: Longs, now_ms: int, visible_at: int, owner: int, events: Events
    ) -> None:
        events.make_room(len(indexes))
        rows = self.rows
        events.count = int(
            kernels.lease_again(
                rows.rows, rows.minima, rows.bounds, indexes, now_ms, visible_at, owner,
                self.number, events.table, events.count,
            )
        )  # fmt: skip

    def end_dead(self, queue_offsets: Longs, now_ms: int, events: Events) -> None:
        """Take rows that are dead letters by now for acknowledged."""
        indexes = self.rows.find(queue_offsets)
        indexes = indexes[indexes >= 0]
        states = (self.rows.rows[indexes, columns.STATE] >> columns.STATE_BITS) & 0xFF
        self._change(indexes[states == columns.DEAD], columns.GONE, now_ms, events)

    def release(self, owner: int, visible_at: int, events: Events) -> int:
        """Let the leases of an owner end at a time; return how many."""
        indexes = self.rows.owned_by(owner)
        self._change(indexes, columns.WAITING, visible_at, events)
        return len(indexes)

    def progress(self, now_ms: int, until: Longs, renewed_max_ms: int) -> QueueLeases:
        """Return where the group is in the queue."""
        rows = self.rows
        leased = int(kernels.count_leased(rows.rows, rows.bounds, now_ms, until, renewed_max_ms))
        return QueueLeases(
            self.name.source, self.name.queue_id, rows.group_offset, rows.next_offset, leased,
            rows.live_count - leased,
        )  # fmt: skip

    def track(
        self, queue_offset: int, now_ms: int, owners: Owners, renewed_max_ms: int
    ) -> LeaseTrack:
        """Return what the group did with the message of a queue offset."""
        group = self.name.group
        if queue_offset >= self.rows.next_offset:
            return LeaseTrack(group, TrackState.READY)
        index = int(self.rows.find(np.array([queue_offset]))[0])
        if index < 0:
            is_before = queue_offset < self.begin_offset
            return LeaseTrack(group, TrackState.BEFORE_BEGIN if is_before else TrackState.DONE)
        row = self.rows.rows[index]
        value = int(row[columns.STATE])
        state, attempts = state_of(value), attempts_of(value)
        if state == columns.DEAD:
            return LeaseTrack(group, TrackState.DEAD, attempts)
        if state == columns.BLOCKED:
            return LeaseTrack(group, TrackState.WAITING, attempts)
        until_ms = lease_end(self.rows.rows, index, owners.until, renewed_max_ms)
        if until_ms <= now_ms:
            return LeaseTrack(group, TrackState.READY, attempts)
        if state == columns.WAITING or not row[columns.LEASED_AT]:
            return LeaseTrack(group, TrackState.WAITING, attempts, until_ms)
        owner = owner_of(value)
        client_id = "" if owner == NO_OWNER else owners.client_of(owner)
        return LeaseTrack(group, TrackState.IN_FLIGHT, attempts, until_ms, client_id)

    # ---- what is new

    def hand_out(
        self, result: PullResult, records: Longs, count: int, last: Place, *, rules: GroupRules,
        now_ms: int, visible_at: int, owner: int, events: Events,
    ) -> HandedOut:  # fmt: skip
        """Lease what is chosen of the first ``count`` records of a pull, and go on after it.

        ``last`` is the record before that. The caller notes where the queue goes on, after an error too.
        """
        rows = self.rows
        rows.make_room(count)
        events.make_room(count + 1)
        events.count = int(
            kernels.add_rows(
                rows.rows, rows.minima, rows.bounds, records, count, now_ms, visible_at, owner,
                rules.attempts_max, self.number, events.table, events.count,
            )
        )  # fmt: skip
        rows.next_offset = result.next_offset
        self.last = last
        chosen = records[:count, columns.IS_CHOSEN] != 0
        slices = result.slices
        if not chosen.all():
            slices = _chosen_slices(result.slices, records[:count], chosen)
            records = records[:count][chosen]
            count = len(records)
        return HandedOut(
            np.ascontiguousarray(records[:count, columns.RECORD_OFFSET]),
            np.ascontiguousarray(records[:count, columns.RECONSUME_TIMES]),
            slices,
        )


def names_of(queues: Iterable[LeasedQueue]) -> dict[str, list[list[object]]]:
    """Return what a journal names of queues."""
    queues = list(queues)
    names: dict[str, list[list[object]]] = {"queues": [each.line for each in queues]}
    begins: list[list[object]] = [
        [each.number, each.begin_offset] for each in queues if each.begin_offset
    ]
    if begins:
        names["begins"] = begins
    return names


def _chosen_slices(
    slices: tuple[memoryview, ...], records: Longs, chosen: npt.NDArray[np.bool_]
) -> tuple[memoryview, ...]:
    """Return the chosen records of slices; a record's begin and end are those in its slice."""
    pieces = []
    size = at = 0
    for view in slices:
        end = at
        while end < len(records) and (end == at or records[end, record_kernels.BEGIN] > 0):
            end += 1
        kept = records[at:end][chosen[at:end]]
        if len(kept):
            ranges = np.ascontiguousarray(kept[:, : record_kernels.END + 1])
            pieces.append((np.frombuffer(view, np.uint8), ranges))
            size += int((ranges[:, 1] - ranges[:, 0]).sum())
        at = end
    return join_pieces(pieces, size)


def last_place(
    result: PullResult, records: Longs, count: int, queue: LeasedQueue, queues: StoreQueues
) -> Place:
    """Return where the last record that a pull has looked at lies."""
    if (
        result.status is PullStatus.FOUND
        and count
        and records[count - 1, columns.RECORD_OFFSET] == result.next_offset - 1
    ):
        record = result.slices[-1][int(records[count - 1, record_kernels.BEGIN]) :]
        _, commit_offset = OFFSETS.unpack_from(record, QUEUE_OFFSET_POSITION)
        return Place(commit_offset, store_time_in(record))
    if result.next_offset <= 0:
        return NOWHERE
    return queues.place(queue.name.source, queue.name.queue_id, result.next_offset - 1)
