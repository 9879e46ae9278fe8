"""One queue of a group: what is handed out of it, read from the store and noted for the journal."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format import lease_journal as journal
from storage.kernels.leases import (
    BLOCK_BITS,
    BLOCK_SIZE,
    IS_CHOSEN,
    RECONSUME_TIMES,
    RECORD_OFFSET,
    Run,
    runs_of,
)
from storage.leases.journal import Changes, JournaledQueue, LeasedQueueName
from storage.leases.owners import Owners
from storage.leases.queues import NOWHERE, Place, StoreQueues
from storage.leases.ranges import (
    BLOCKED,
    DEAD,
    LEASED,
    NEVER,
    WAITING,
    LeasedRanges,
    Messages,
    State,
    offsets_in,
)
from storage.leases.receive_answer import (
    ReceiveAnswer,
    ReceivedPart,
    chosen_slices,
)
from storage.leases.values import DeadMessages, LeaseTrack, QueueLeases, TrackState
from storage.message import PullResult
from storage.tables.groups import GroupConfig
from storage.view.queues.records import RecordsAt

Longs = npt.NDArray[np.int64]

NOT_SHOWN_MS: Final = 100
_ANY_SIZE: Final = 1 << 62


class LeasedQueue(JournaledQueue):
    """All methods run under the lock of the leases."""

    def __init__(
        self, number: int, name: LeasedQueueName, ranges: LeasedRanges, last: Place = NOWHERE
    ) -> None:
        super().__init__(number, name, ranges, last)
        self.is_checked = False  # whether the queue still holds what was handed out of it
        self.is_handed_back = False  # a broker has moved the group's offset since

    @classmethod
    def of(cls, found: JournaledQueue) -> LeasedQueue:
        """Go on with a queue of a journal."""
        queue = cls(found.number, found.name, found.ranges, found.last)
        queue.committed_offset = found.committed_offset
        queue.begin_offset = found.begin_offset
        return queue

    def set(
        self, messages: Messages, state: State | None, changes: Changes, now_ms: int = 0
    ) -> None:
        """Give messages a state, None for done. DEAD is noted by a new journal alone: after a crash they may come again."""
        number, mask, _ = messages
        self.ranges.set(number, mask, state, now_ms)
        if state is None:
            changes.done(self, number, mask)
        elif state.kind != DEAD:
            changes.set(self, number, mask, state)

    def note_next(self, changes: Changes) -> None:
        """Note what was handed out."""
        self.begin_offset = min(self.begin_offset, self.ranges.next_offset)
        changes.note(journal.NEXT, self, self.ranges.next_offset)

    def note_committed(self, queue_offset: int, changes: Changes) -> None:
        """Note what consumerOffset.json was given."""
        self.committed_offset = queue_offset
        changes.note(journal.COMMITTED_AT, self, queue_offset)

    def commit(self, queue_offset: int, before: int, changes: Changes, now_ms: int) -> None:
        """Take over an offset of consumerOffset.json that was ``before`` until now.

        A higher one acknowledges what precedes it; a lower one sets the group back.
        """
        if queue_offset < before:
            self.drop_from(queue_offset, changes, now_ms)
        else:
            self.ranges.drop_before(queue_offset, now_ms)
            changes.note(journal.BEFORE, self, queue_offset)
            if self.ranges.next_offset < queue_offset:
                self.ranges.next_offset = queue_offset
                self.last = NOWHERE
            self.note_next(changes)
        self.note_committed(queue_offset, changes)

    def reset(self, next_offset: int, last: Place, changes: Changes) -> None:
        """Forget all messages, and go on at a queue offset; ``last`` is the record before it."""
        self.ranges = LeasedRanges(next_offset, is_orderly=self.ranges.is_orderly)
        self.last = last
        changes.note(journal.BEFORE, self, NEVER)
        self.note_next(changes)

    def drop_from(self, queue_offset: int, changes: Changes, now_ms: int) -> None:
        """Forget what was handed out from a queue offset on, and go on there."""
        self.ranges.drop_from(queue_offset, now_ms)
        self.last = NOWHERE
        self.note_next(changes)

    # ---- what was handed out before

    def due(
        self, group: GroupConfig, owners: Owners, answer: ReceiveAnswer
    ) -> tuple[list[Messages], list[Messages]]:
        """Return messages to be handed out again, and those to be made dead letters of.

        A lease that was renewed for as long as one may be is given back by the group's backoff.
        """
        alive, dead = [], []
        for each in self.ranges.due(answer.now_ms, answer.messages_left, owners.end_of):
            state = each.state
            if owners.is_used_up(state):
                wait_ms = group.backoff.delay_ms(state.attempts)
                self.set(
                    each,
                    State(WAITING, state.attempts, answer.now_ms + wait_ms, state.leased_at),
                    answer.changes,
                )
            elif state.kind == DEAD or state.attempts >= group.attempts_max:
                dead.append(each)
            else:
                alive.append(each)
        return alive, dead

    def hand_out_again(
        self, store: StoreQueues, due: list[Messages], answer: ReceiveAnswer
    ) -> None:
        """Lease messages once more; those whose records are gone are done."""
        found, there, attempts = self._found(store, due, answer.bytes_left, answer)
        for each in there:
            self.set(
                each,
                State(
                    LEASED, each.state.attempts + 1, answer.visible_at, answer.now_ms, answer.owner
                ),
                answer.changes,
            )
        answer.take(ReceivedPart(self, found.queue_offsets, attempts, found.slices))

    def name_dead(
        self, store: StoreQueues, due: list[Messages], retry_at: int, answer: ReceiveAnswer
    ) -> None:
        """Name messages as dead letters; those whose records are gone are done."""
        found, there, attempts = self._found(store, due, _ANY_SIZE, answer)
        for each in there:
            state = each.state
            dead = State(DEAD, state.attempts, retry_at, state.leased_at)
            self.set(each, dead, answer.changes)
        if there:
            answer.dead.append(
                DeadMessages(
                    self.name.source, self.name.queue_id, found.queue_offsets, found.commit_offsets,
                    attempts,
                )
            )  # fmt: skip

    def _found(
        self, store: StoreQueues, due: list[Messages], max_bytes: int, answer: ReceiveAnswer
    ) -> tuple[RecordsAt, list[Messages], Longs]:
        """Return the records of messages, those messages that have one, and the next attempt of each.

        Where the queue ends before all of them, they wait for what is not shown yet: a writer that has just
        started may be about to show it.
        """
        offsets, attempts = _table(due)
        found = store.records_at(self.name.source, self.name.queue_id, offsets, max_bytes=max_bytes)
        answer.damaged += found.damaged
        if len(found.queue_offsets) == len(offsets):
            return found, due, attempts + 1
        is_there = np.isin(offsets, found.queue_offsets, assume_unique=True)
        attempts = attempts[is_there] + 1
        if not found.looked_at:
            for number, mask, state in due:
                later = state._replace(visible_at=answer.now_ms + NOT_SHOWN_MS)
                self.ranges.set(number, mask, later)
            return found, [], attempts
        is_gone = ~is_there
        is_gone[found.looked_at :] = False
        for gone in _among(due, offsets[is_gone]):
            self.set(gone, None, answer.changes, answer.now_ms)
        return found, _among(due, found.queue_offsets), attempts

    def end_dead(self, queue_offsets: Longs, changes: Changes, now_ms: int) -> None:
        """Take messages that are dead letters by now for acknowledged."""
        for number, mask, _, _ in runs_of(queue_offsets.reshape(-1, 1)):
            for queue_offset in offsets_in(number, mask):
                state = self.ranges.state_of(queue_offset)
                if state is not None and state.kind == DEAD:
                    bit = 1 << queue_offset % BLOCK_SIZE
                    self.set(Messages(number, bit, state), None, changes, now_ms)

    def release(self, owners: Container[int], visible_at: int, changes: Changes) -> int:
        """Let the leases of some owners end at a time; return how many."""
        count = 0
        for each in self.ranges.all():
            state = each.state
            if state.owner in owners:
                released = State(WAITING, state.attempts, visible_at, state.leased_at)
                self.set(each, released, changes)
                count += each.mask.bit_count()
        return count

    def progress(self, now_ms: int, owners: Owners) -> QueueLeases:
        """Return where the group is in the queue."""
        leased = sum(
            mask.bit_count()
            for _, mask, state in self.ranges.all()
            if state.kind == LEASED and state.leased_at and owners.end_of(state) > now_ms
        )
        return QueueLeases(
            self.name.source, self.name.queue_id, self.ranges.group_offset,
            self.ranges.next_offset, leased, self.ranges.live_count - leased,
        )  # fmt: skip

    def track(self, queue_offset: int, now_ms: int, owners: Owners) -> LeaseTrack:
        """Return what the group did with the message of a queue offset."""
        group, state = self.name.group, self.ranges.state_of(queue_offset)
        if queue_offset >= self.ranges.next_offset:
            return LeaseTrack(group, TrackState.READY)
        if state is None:
            is_before = queue_offset < self.begin_offset
            return LeaseTrack(group, TrackState.BEFORE_BEGIN if is_before else TrackState.DONE)
        if state.kind in (DEAD, BLOCKED):
            found = TrackState.DEAD if state.kind == DEAD else TrackState.WAITING
            return LeaseTrack(group, found, state.attempts)
        until_ms = owners.end_of(state)
        if until_ms <= now_ms:
            return LeaseTrack(group, TrackState.READY, state.attempts)
        if state.kind == WAITING or not state.leased_at:
            return LeaseTrack(group, TrackState.WAITING, state.attempts, until_ms)
        client_id = owners.client_of(state.owner)
        return LeaseTrack(group, TrackState.IN_FLIGHT, state.attempts, until_ms, client_id)

    # ---- what is new

    def hand_out(
        self, result: PullResult, records: Longs, last: Place, answer: ReceiveAnswer, group: GroupConfig
    ) -> None:  # fmt: skip
        """Lease what is chosen of the records of a pull, and go on after it; ``last`` is the record before that.

        What has used up its attempts is due at once, and what is blocked waits for its message group. The caller
        notes where the queue goes on, after an error too.
        """
        taken: dict[tuple[int, State], int] = {}  # masks, by block and state
        leased = State(LEASED, 1, answer.visible_at, answer.now_ms, answer.owner)
        for number, mask, begin, end in self._runs_of(records):
            offset, attempts, message_group, is_chosen = records[begin, RECORD_OFFSET:].tolist()
            if not is_chosen:
                continue
            if self.ranges.has_line(message_group):
                state = State(BLOCKED, attempts, NEVER)
            elif attempts >= group.attempts_max:
                state = State(LEASED, attempts, answer.now_ms)
            else:
                state = leased if not attempts else leased._replace(attempts=attempts + 1)
            self.ranges.join_line(offset, message_group)
            taken[number, state] = taken.get((number, state), 0) | mask
            if not state.leased_at:
                records[begin:end, IS_CHOSEN] = 0
        for (number, state), mask in taken.items():
            self.set(Messages(number, mask, state), state, answer.changes)
        self.ranges.next_offset = result.next_offset
        self.last = last
        slices = chosen_slices(result.slices, records)
        chosen = records[records[:, IS_CHOSEN] != 0]
        offsets = np.ascontiguousarray(chosen[:, RECORD_OFFSET])
        answer.take(ReceivedPart(self, offsets, chosen[:, RECONSUME_TIMES] + 1, slices))

    def _runs_of(self, records: Longs) -> list[Run]:
        """Return the runs of records; in an orderly group each record is one."""
        if not self.ranges.is_orderly:
            return runs_of(records, RECORD_OFFSET)
        offsets = records[:, RECORD_OFFSET].tolist()
        return [
            (offset >> BLOCK_BITS, 1 << offset % BLOCK_SIZE, line, line + 1)
            for line, offset in enumerate(offsets)
        ]


def _table(messages: list[Messages]) -> tuple[Longs, Longs]:
    """Return queue offsets, ascending, and the attempts of each."""
    table = sorted(
        (queue_offset, state.attempts)
        for number, mask, state in messages
        for queue_offset in offsets_in(number, mask)
    )
    return (
        np.array([queue_offset for queue_offset, _ in table], np.int64),
        np.array([attempts for _, attempts in table], np.int64),
    )


def _among(messages: list[Messages], queue_offsets: Longs) -> list[Messages]:
    """Return of messages those of some queue offsets, which ascend."""
    masks = {number: mask for number, mask, _, _ in runs_of(queue_offsets.reshape(-1, 1))}
    return [
        Messages(number, mask & masks[number], state)
        for number, mask, state in messages
        if mask & masks.get(number, 0)
    ]
