"""A group's leases in one topic: what is handed out of its queues, and what becomes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from storage.config import LeaseConfig
from storage.errors import GroupInUse
from storage.format.leases.journal import EVENT_SIZE, encode_blocks
from storage.format.leases.receipt_handle import HANDLE_SIZE, PACKED_SIZE
from storage.journal.journal import Journal
from storage.kernels.leases import columns, handles
from storage.leases.leased_queue import Events, LeasedQueue, last_place
from storage.leases.new_records import PULLED_BYTES_MIN, PULLED_MIN, choose, records_of
from storage.leases.owners import Owners
from storage.leases.queues import StoreQueues
from storage.leases.receive_answer import PREDICATE_UNITS, KnownAttempts, ReceiveAnswer
from storage.leases.topic_queues import TopicQueues
from storage.leases.values import (
    DeadMessages,
    GroupRules,
    HandleProblem,
    LeaseTrack,
    OffsetCommit,
    QueueLeases,
    ReceivedBatch,
    ReceiveQuestion,
    Refusal,
)
from storage.message import PullResult, PullStatus

Longs = npt.NDArray[np.int64]


class GroupTopic:
    """Safe to use from several threads; one call at a time looks for messages and changes rows."""

    def __init__(
        self, group: str, topic: str, *, key: tuple[int, int], queues: StoreQueues,
        journal: Journal, owners: Owners, config: LeaseConfig,
    ) -> None:  # fmt: skip
        self.group = group
        self.topic = topic
        self.guard = threading.Lock()
        self.queues = TopicQueues(queues.arrived)
        self.is_forgotten = False  # and another one may have taken its place
        self._key = key
        self._store = queues
        self._journal = journal
        self._owners = owners
        self._config = config
        self._scratch = np.zeros(PACKED_SIZE, np.uint8)
        self._attempts = KnownAttempts(config.attempt_ids_max)

    def nearest_ms_of(self, queue_ids: Collection[int]) -> int:
        """Return before when nothing is visible again of some queues and the retry topics; none: of all."""
        return self.queues.nearest_ms_of(queue_ids) if queue_ids else self.queues.nearest_ms

    @property
    def row_count(self) -> int:
        """How many messages are handed out and not acknowledged."""
        return self.queues.live_count

    @contextmanager
    def changing(self) -> Iterator[Events]:
        """Keep all others out, and write the events that are added then, after an error too."""
        with self.guard:
            events = Events()
            try:
                yield events
            finally:
                self.write(events)

    def write(self, events: Events) -> None:
        """Write events to the journal; they survive the process on return."""
        if events.count:
            self._journal.append(self, encode_blocks(events.encoded()))

    # ---- handing out

    def receive(
        self, rules: GroupRules, question: ReceiveQuestion, now_ms: int, *, lease_ms: int,
        owner: int, takes_new: bool,
    ) -> ReceivedBatch:  # fmt: skip
        """Hand out messages: those whose time has come, then new ones, from another queue each time."""
        with self.guard:
            if question.attempt_id and rules.is_orderly:
                again = self._attempts.again(question.attempt_id, now_ms, self._store)
                if again is not None:
                    return again.batch(self._key)
            self._journal.reserve(
                (question.max_messages + self._config.blocked_max * rules.is_orderly + 64)
                * EVENT_SIZE
                * 2
            )
            answer = ReceiveAnswer(question, now_ms, lease_ms, owner)
            self.queues.take_turn()
            try:
                for queue in self.queues.due(question.queue_ids, now_ms):
                    if answer.is_full:
                        break
                    with answer.passing_over():
                        self._hand_out_again(queue, rules, answer)
                if takes_new and not answer.is_full:
                    for queue in self.queues.unread(question.queue_ids, now_ms):
                        if answer.is_full:
                            break
                        with answer.passing_over():
                            self._hand_out_new(queue, rules, question, answer)
            finally:  # what has changed is written, after an error too
                self.write(answer.events)
            if question.attempt_id and rules.is_orderly and answer.parts:
                self._attempts.remember(question.attempt_id, answer)
            return answer.batch(self._key)

    def _hand_out_again(self, queue: LeasedQueue, rules: GroupRules, answer: ReceiveAnswer) -> None:
        alive, dead = queue.due(
            rules, answer.now_ms, self._owners.until, self._config.renewed_max_ms,
            answer.messages_left,
        )  # fmt: skip
        if len(alive):
            found = queue.hand_out_again(
                self._store, alive, answer.bytes_left, answer.now_ms, answer.visible_at,
                answer.owner, answer.events, answer.damaged,
            )  # fmt: skip
            answer.take(queue, found)
        if len(dead):
            letters = queue.dead_letters(
                self._store, dead, answer.now_ms + self._config.dead_letter_retry_ms,
                answer.events, answer.now_ms, answer.damaged,
            )  # fmt: skip
            if letters is not None:
                answer.dead.append(letters)

    def _hand_out_new(
        self,
        queue: LeasedQueue,
        rules: GroupRules,
        question: ReceiveQuestion,
        answer: ReceiveAnswer,
    ) -> None:
        begin = queue.rows.next_offset
        try:
            self._go_on(queue, rules, question, answer)
        finally:
            if queue.rows.next_offset != begin:
                queue.note_next(answer.events)

    def _go_on(
        self,
        queue: LeasedQueue,
        rules: GroupRules,
        question: ReceiveQuestion,
        answer: ReceiveAnswer,
    ) -> None:
        is_own = queue.kind == 0  # retry topics are not filtered
        predicate = question.predicate if is_own else None
        while not answer.is_full:
            if rules.is_orderly and (
                queue.rows.blocked_count >= self._config.blocked_max
                or queue.rows.live_count >= self._config.orderly_rows_max
            ):
                return
            messages, size = answer.messages_left, max(answer.bytes_left, 1)
            if predicate is not None:
                messages, size = max(messages, PULLED_MIN), max(size, PULLED_BYTES_MIN)
            result = self._store.pull(
                queue.name.source, queue.name.queue_id, queue.rows.next_offset,
                max_messages=messages, max_bytes=size,
                tag_expression=question.tag_expression if is_own else "",
            )  # fmt: skip
            if not self._has_moved(queue, result, answer.events):
                if result.next_offset >= result.max_offset:
                    self.queues.is_read(queue)
                return
            records = records_of(result, is_orderly=rules.is_orderly)
            cost = 1
            if predicate is not None:
                result = choose(result, records, predicate, answer)
                cost = max(PREDICATE_UNITS, predicate.cost)
                if result.next_offset == queue.rows.next_offset:
                    answer.leaves_some = True  # what is chosen first is too long for what is left
                    return
            elif answer.parts and sum(map(len, result.slices)) > answer.bytes_left:
                answer.leaves_some = True  # its first record alone is too long for what is left
                return
            count = result.record_count
            last = last_place(result, records, count, queue, self._store)
            answer.damaged += result.damaged
            answer.units_left -= (result.next_offset - queue.rows.next_offset) * cost
            found = queue.hand_out(
                result, records, count, last, rules=rules, now_ms=answer.now_ms,
                visible_at=answer.visible_at, owner=answer.owner, events=answer.events,
            )  # fmt: skip
            answer.take(queue, found)
            if result.next_offset >= result.max_offset:
                self.queues.is_read(queue)
                return

    def _has_moved(self, queue: LeasedQueue, result: PullResult, events: Events) -> bool:
        """Return whether a pull has looked at anything."""
        if result.status is PullStatus.OFFSET_OVERFLOW_BADLY:
            name, next_offset = queue.name, queue.rows.next_offset
            _, end = self._store.bounds(name.source, name.queue_id)
            if end < next_offset and self._store.shows_all():
                queue.drop_from(end, events, 0)
            return False
        return result.next_offset > queue.rows.next_offset

    # ---- what becomes of it

    def settle(
        self, sealed: bytes, state: int, visible_at: int, now_ms: int, backoff: Longs
    ) -> tuple[Longs, list[Refusal], bool]:
        """Do the same to all messages that receipt handles name; it survives the process on return.

        ``backoff`` takes the place of the time of what is given back; see ``handles.settle_handles``. Returns
        the opened handles, those that are refused, and whether anything may be visible sooner.
        """
        opened = np.empty((len(sealed) // HANDLE_SIZE, columns.HANDLE_COLUMNS), np.int64)
        with self.guard:
            self._journal.reserve((len(opened) + 64) * EVENT_SIZE)
            is_sooner = False  # of each queue: a receive may be from one alone
            handles.open_handles(np.frombuffer(sealed, np.uint8), *self._key, self._scratch, opened)
            events = Events(len(opened) + 1)
            for queue in self.queues.named(opened):
                rows = queue.rows
                nearest_ms = rows.nearest_ms
                events.make_room(len(opened))
                events.count = int(
                    handles.settle_handles(
                        rows.rows, rows.minima, rows.bounds, opened, queue.kind,
                        queue.name.queue_id, now_ms, self._owners.until,
                        self._config.renewed_max_ms, state, visible_at, backoff, queue.number,
                        events.table, events.count,
                    )
                )  # fmt: skip
                is_sooner |= rows.nearest_ms < nearest_ms
            self.write(events)
            return opened, _refusals(opened), is_sooner

    def dead_letters_of(self, opened: Longs) -> list[DeadMessages]:
        """Name the records of good handles as dead letters."""
        found = []
        with self.guard:
            for queue in self.queues.named(opened):
                own = (
                    (opened[:, columns.HANDLE_PROBLEM] == columns.GOOD)
                    & (opened[:, columns.HANDLE_KIND] == queue.kind)
                    & (opened[:, columns.HANDLE_QUEUE_ID] == queue.name.queue_id)
                )
                offsets, first = np.unique(opened[own, columns.HANDLE_OFFSET], return_index=True)
                attempts = opened[own, columns.HANDLE_ATTEMPT][first]
                if len(offsets):
                    records = self._store.records_at(
                        queue.name.source, queue.name.queue_id, offsets, max_bytes=1 << 62
                    )
                    found.append(
                        DeadMessages(
                            queue.name.source, queue.name.queue_id, records.queue_offsets,
                            records.commit_offsets,
                            attempts[np.isin(offsets, records.queue_offsets, assume_unique=True)],
                        )
                    )  # fmt: skip
        return found

    def end_dead_letters(self, dead: Iterable[DeadMessages], now_ms: int) -> bool:
        """Take dead letters that were copied for acknowledged; return whether anything is visible sooner."""
        with self.changing() as events:
            is_sooner = False
            for letters in dead:
                for queue in self.queues.all:
                    if (
                        queue.name.source == letters.topic
                        and queue.name.queue_id == letters.queue_id
                    ):
                        nearest_ms = queue.rows.nearest_ms
                        queue.end_dead(letters.queue_offsets, now_ms, events)
                        is_sooner |= queue.rows.nearest_ms < nearest_ms
            return is_sooner

    def release(self, owner: int, visible_at: int) -> int:
        """Let all leases of an owner end at a time; return how many there were."""
        with self.changing() as events:
            return sum(queue.release(owner, visible_at, events) for queue in self.queues.all)

    def reset(self, next_offsets: Mapping[int, int], *, drops_retries: bool) -> None:
        """Let the group go on at queue offsets, by queue id; leases of those queues are no more."""
        with self.changing() as events:
            targets = []
            for queue in self.queues.all:
                name = queue.name
                if not queue.kind:
                    next_offset = next_offsets.get(name.queue_id)
                elif drops_retries:
                    _, next_offset = self._store.bounds(name.source, name.queue_id)
                else:
                    continue
                if next_offset is not None:
                    last = self._store.place_before(name.source, name.queue_id, next_offset)
                    targets.append((queue, next_offset, last))
            for queue, next_offset, last in targets:
                queue.reset(next_offset, last, events)
            self.queues.expect_any()
            self._attempts.clear()

    def check_commit(self, offset: OffsetCommit) -> None:
        """Raise GroupInUse if a commit would set the group back while its members have messages."""
        with self.guard:
            for queue in self.queues.all:
                is_it = (queue.name.source, queue.name.queue_id) == (offset.topic, offset.queue_id)
                group_offset = queue.rows.group_offset
                if is_it and offset.queue_offset < group_offset and self.row_count:
                    raise GroupInUse(*offset[:3], group_offset=group_offset)

    def commit(self, offset: OffsetCommit, now_ms: int) -> None:
        """Take over an offset that the group has committed, if it is in one of these queues."""
        with self.changing() as events:
            for queue in self.queues.all:
                if (queue.name.source, queue.name.queue_id) == (offset.topic, offset.queue_id):
                    queue.commit(offset.queue_offset, queue.rows.group_offset, events, now_ms)
                    self.queues.expect_any()
                    self._attempts.clear()

    def have(self, queues: list[LeasedQueue], *, some_gone: bool) -> None:
        """Have these queues and no others, under the lock; what attempts were given of one that is gone is gone."""
        self.queues.set(queues)
        if some_gone:
            self._attempts.clear()

    def uncommitted_offsets(self) -> list[tuple[LeasedQueue, int]]:
        """Return queues whose group offset consumerOffset.json does not have yet, and that offset."""
        with self.guard:
            return [
                (queue, queue.rows.group_offset)
                for queue in self.queues.all
                if queue.rows.group_offset != queue.rows.committed_offset
            ]

    def progress(self, now_ms: int) -> list[QueueLeases]:
        """Return where the group is in each queue."""
        with self.guard:
            return [
                queue.progress(now_ms, self._owners.until, self._config.renewed_max_ms)
                for queue in self.queues.all
            ]

    def track(
        self, topic: str, queue_id: int, incarnation: int, queue_offset: int, now_ms: int
    ) -> LeaseTrack | None:
        """Return what the group did with a message of a queue; None if it has nothing of that queue yet."""
        with self.guard:
            for queue in self.queues.all:
                name = queue.name
                if (name.source, name.queue_id, name.incarnation) == (topic, queue_id, incarnation):
                    return queue.track(
                        queue_offset, now_ms, self._owners, self._config.renewed_max_ms
                    )
        return None

    def each(self, call: Callable[[LeasedQueue, Events], None]) -> None:
        """Call something for each queue, and write the events that it adds."""
        with self.changing() as events:
            for queue in self.queues.all:
                call(queue, events)


def _refusals(opened: Longs) -> list[Refusal]:
    problems = opened[:, columns.HANDLE_PROBLEM]
    if not problems.any():
        return []
    problems[problems == columns.OPEN] = columns.EXPIRED  # of a queue that is no more
    return [
        Refusal(index, HandleProblem(int(problems[index])))
        for index in np.flatnonzero(problems).tolist()
    ]
