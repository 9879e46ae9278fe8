"""A group's leases in one topic: what is handed out of its queues, and what becomes of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.config import LeaseConfig
from storage.errors import GroupInUse
from storage.format.receipt_handle import ATTEMPT_MAX, HANDLE_SIZE, decode_handles, salt_of
from storage.kernels.leases import (
    BLOCK_SIZE,
    FORGED_KIND,
    HANDLE_COLUMNS,
    HANDLE_OFFSET,
    open_handles,
    runs_of,
)
from storage.leases.journal import Changes, JournaledQueue
from storage.leases.leased_queue import LeasedQueue
from storage.leases.owners import Owners
from storage.leases.queues import NOWHERE, StoreQueues
from storage.leases.ranges import LEASED, NEVER, NO_OWNER, WAITING, Messages, State, offsets_in
from storage.leases.receive_answer import (
    PREDICATE_UNITS,
    PULLED_BYTES_MIN,
    PULLED_MIN,
    ReceiveAnswer,
    ReceivedPart,
    choose,
    last_place,
    records_of,
)
from storage.leases.values import (
    DeadMessages,
    HandleProblem,
    OffsetCommit,
    QueueLeases,
    ReceivedBatch,
    ReceiveQuestion,
    Refusal,
)
from storage.message import PullResult, PullStatus
from storage.tables.groups import GroupConfig

Longs = npt.NDArray[np.int64]
Become = Callable[[State], State | None]
"""What becomes of a message, None for done."""

_LOOK_AT_ALL_MS: Final = 1_000


class _Attempt(NamedTuple):
    """What a receive with an attempt id was given."""

    now_ms: int
    visible_at: int
    parts: list[tuple[JournaledQueue, Longs]]  # queue offsets


class GroupTopic:
    """Used under the lock of the leases, but for ``nearest_ms``.

    Which queues have new messages is not looked up in each: a queue that was found at its end is left alone until
    the log says that it got messages, and is looked at once a second in any case.
    """

    def __init__(
        self, group: str, topic: str, *, store: StoreQueues, owners: Owners, config: LeaseConfig
    ) -> None:  # fmt: skip
        self.group = group
        self.topic = topic
        self.queues: list[LeasedQueue] = []
        self.shape: object = None  # what its queues were taken from; ``QueueSets``
        self.looked_at: object = None  # the tables' state when that was compared last
        self._salt = salt_of(group, topic)
        self._store = store
        self._owners = owners
        self._config = config
        self._attempts: OrderedDict[str, _Attempt] = OrderedDict()
        self._by_name: dict[tuple[int, int], LeasedQueue] = {}  # kind and queue id
        self._numbers: dict[tuple[str, int], int] = {}
        self._turn = 0
        self._look = 0  # the last one whose arrivals are in ``_unread``
        self._unread: set[int] = set()  # numbers of queues that may have new messages
        self._looked_at_all_ms = 0

    def set_queues(self, queues: Iterable[LeasedQueue]) -> None:
        """Have these queues and no others; what was given of others is not given again to the same attempt."""
        before, self.queues = self.queues, list(queues)
        self._by_name = {(each.kind, each.name.queue_id): each for each in self.queues}
        self._numbers = {
            (each.name.source, each.name.queue_id): number
            for number, each in enumerate(self.queues)
        }
        self._begin_anew(some_gone=not set(before) <= set(self.queues))

    def _begin_anew(self, *, some_gone: bool) -> None:
        """Have all queues looked at the next time."""
        self._unread = set(range(len(self.queues)))
        self._looked_at_all_ms = 0
        if some_gone:
            self._attempts.clear()

    def nearest_ms(self, queue_ids: Collection[int] = ()) -> int:
        """Return before when nothing is visible again of some queues and the retry topics; none: of all."""
        return min(
            (
                queue.ranges.nearest_ms
                for queue in self.queues
                if not queue_ids or queue.kind or queue.name.queue_id in queue_ids
            ),
            default=NEVER,
        )

    @property
    def live_count(self) -> int:
        """How many messages are handed out and not done."""
        return sum(queue.ranges.live_count for queue in self.queues)

    def queue_of(self, source: str, queue_id: int) -> LeasedQueue | None:
        """Return the queue of a topic, which is the group's or a retry topic."""
        number = self._numbers.get((source, queue_id))
        return None if number is None else self.queues[number]

    # ---- handing out

    def receive(
        self, group: GroupConfig, question: ReceiveQuestion, answer: ReceiveAnswer, *, takes_new: bool
    ) -> ReceivedBatch:  # fmt: skip
        """Hand out messages: those whose time has come, then new ones, from another queue each time."""
        if question.attempt_id and group.orderly:
            again = self._again(question.attempt_id, answer.now_ms)
            if again is not None:
                return again.batch(self._salt)
        self._turn += 1
        due = [
            number
            for number, queue in enumerate(self.queues)
            if queue.ranges.nearest_ms <= answer.now_ms
        ]
        for queue in self._in_turn(due, question.queue_ids):
            if answer.is_full:
                break
            with answer.passing_over():
                self._hand_out_again(queue, group, answer)
        if takes_new and not answer.is_full:
            for queue in self._in_turn(self._may_have_new(answer.now_ms), question.queue_ids):
                if answer.is_full:
                    break
                with answer.passing_over():
                    self._hand_out_new(queue, group, question, answer)
        if question.attempt_id and group.orderly and answer.parts:
            parts = [(part.queue, part.queue_offsets) for part in answer.parts]
            given = _Attempt(answer.now_ms, answer.visible_at, parts)
            self._attempts[question.attempt_id] = given
            self._attempts.move_to_end(question.attempt_id)
            while len(self._attempts) > self._config.attempt_ids_max:
                self._attempts.popitem(last=False)
        return answer.batch(self._salt)

    def _again(self, attempt_id: str, now_ms: int) -> ReceiveAnswer | None:
        """Return what is still leased of what an attempt was given; None if nothing is."""
        given = self._attempts.get(attempt_id)
        if given is None:
            return None
        then = given.now_ms, given.visible_at
        answer = ReceiveAnswer(ReceiveQuestion(), *then, NO_OWNER, Changes())
        for queue, offsets in given.parts:
            still: dict[int, int] = {}
            for offset in offsets.tolist():
                state = queue.ranges.state_of(offset)
                if (
                    state is not None
                    and (state.kind, state.leased_at) == (LEASED, given.now_ms)
                    and state.visible_at > now_ms
                ):
                    still[offset] = state.attempts
            if still:
                found = self._store.records_at(
                    queue.name.source, queue.name.queue_id, np.array(sorted(still), np.int64),
                    max_bytes=1 << 62,
                )  # fmt: skip
                attempts = [still[offset] for offset in found.queue_offsets.tolist()]
                answer.take(
                    ReceivedPart(
                        queue, found.queue_offsets, np.array(attempts, np.int64), found.slices
                    )
                )
        return answer if answer.parts else None

    def _may_have_new(self, now_ms: int) -> list[int]:
        """Return the numbers of queues that may have new messages."""
        if len(self.queues) == 1:
            return list(range(len(self.queues)))
        self._look, queues = self._store.arrived.since(self._look)
        if queues is None or not 0 <= now_ms - self._looked_at_all_ms < _LOOK_AT_ALL_MS:
            self._looked_at_all_ms = now_ms
            self._unread = set(range(len(self.queues)))
        else:
            self._unread.update(self._numbers[each] for each in queues if each in self._numbers)
        return sorted(self._unread)

    def _in_turn(self, numbers: Sequence[int], queue_ids: Sequence[int]) -> list[LeasedQueue]:
        if not numbers:
            return []
        first = self._turn % len(self.queues)
        queues = [self.queues[number] for number in numbers if number >= first]
        queues += [self.queues[number] for number in numbers if number < first]
        if queue_ids:
            queues = [each for each in queues if each.kind or each.name.queue_id in queue_ids]
        return queues

    def _hand_out_again(
        self, queue: LeasedQueue, group: GroupConfig, answer: ReceiveAnswer
    ) -> None:
        alive, dead = queue.due(group, self._owners, answer)
        if alive:
            queue.hand_out_again(self._store, alive, answer)
        if dead:
            retry_at = answer.now_ms + self._config.dead_letter_retry_ms
            queue.name_dead(self._store, dead, retry_at, answer)

    def _hand_out_new(
        self, queue: LeasedQueue, group: GroupConfig, question: ReceiveQuestion, answer: ReceiveAnswer
    ) -> None:  # fmt: skip
        begin = queue.ranges.next_offset
        try:
            self._go_on(queue, group, question, answer)
        finally:
            if queue.ranges.next_offset != begin:
                queue.note_next(answer.changes)

    def _go_on(
        self, queue: LeasedQueue, group: GroupConfig, question: ReceiveQuestion, answer: ReceiveAnswer
    ) -> None:  # fmt: skip
        name, ranges = queue.name, queue.ranges
        is_own = queue.kind == 0  # retry topics are not filtered
        predicate = question.predicate if is_own else None
        while not answer.is_full:
            if group.orderly and (
                ranges.blocked_count >= self._config.blocked_max
                or ranges.live_count >= self._config.orderly_rows_max
            ):
                return
            messages, size = answer.messages_left, max(answer.bytes_left, 1)
            if predicate is not None:
                messages, size = max(messages, PULLED_MIN), max(size, PULLED_BYTES_MIN)
            result = self._store.reader.pull(
                name.source, name.queue_id, queue_offset=ranges.next_offset,
                max_messages=messages, max_bytes=size,
                tag_expression=question.tag_expression if is_own else "",
            )  # fmt: skip
            if not self._has_moved(queue, result, answer.changes):
                if result.next_offset >= result.max_offset:
                    self._is_read(queue)
                return
            records = records_of(result, is_orderly=group.orderly)
            cost = 1
            if predicate is not None:
                result = choose(result, records, predicate, answer)
                records = records[: result.record_count]
                cost = max(PREDICATE_UNITS, predicate.cost)
                if result.next_offset == ranges.next_offset:
                    answer.leaves_some = True  # what is chosen first is too long for what is left
                    return
            elif answer.parts and sum(map(len, result.slices)) > answer.bytes_left:
                answer.leaves_some = True  # its first record alone is too long for what is left
                return
            last = last_place(result, records, queue, self._store)
            answer.damaged += result.damaged
            answer.units_left -= (result.next_offset - ranges.next_offset) * cost
            queue.hand_out(result, records, last, answer, group)
            if result.next_offset >= result.max_offset:
                self._is_read(queue)
                return

    def _is_read(self, queue: LeasedQueue) -> None:
        """Note that a queue was found at its end."""
        self._unread.discard(self._numbers[queue.name.source, queue.name.queue_id])

    def _has_moved(self, queue: LeasedQueue, result: PullResult, changes: Changes) -> bool:
        """Return whether a pull has looked at anything."""
        next_offset = queue.ranges.next_offset
        if result.status is PullStatus.OFFSET_OVERFLOW_BADLY:
            _, end = self._store.bounds(queue.name.source, queue.name.queue_id)
            if end < next_offset and self._store.reader.shows_all():
                queue.drop_from(end, changes, 0)
            return False
        return result.next_offset > next_offset

    # ---- what becomes of it

    def settle(
        self, sealed: bytes, become: Become, now_ms: int, changes: Changes
    ) -> tuple[list[Refusal], list[tuple[LeasedQueue, Messages]]]:
        """Do the same to all messages that receipt handles name; return the refused handles, and what is settled."""
        opened = np.empty((len(sealed) // HANDLE_SIZE, HANDLE_COLUMNS), np.int64)
        open_handles(np.frombuffer(decode_handles(sealed), np.uint8), self._salt, opened)
        refused: list[Refusal] = []
        settled: list[tuple[LeasedQueue, Messages]] = []
        nearest_ms: dict[LeasedQueue, int] = {}
        for number, mask, begin, end in runs_of(opened):
            _, kind, queue_id, attempt, leased_at = opened[begin].tolist()
            queue = self._by_name.get((kind, queue_id))
            if kind == FORGED_KIND or queue is None:
                problem = HandleProblem.FORGED if kind == FORGED_KIND else HandleProblem.EXPIRED
                refused += [Refusal(index, problem) for index in range(begin, end)]
                continue
            nearest_ms.setdefault(queue, queue.ranges.nearest_ms)
            state = queue.ranges.shared_state(number, mask)
            if mask.bit_count() == end - begin and self._is_good(state, attempt, leased_at, now_ms):
                pieces = [(mask, begin)]
            else:
                offsets = opened[begin:end, HANDLE_OFFSET].tolist()
                pieces = [(1 << at % BLOCK_SIZE, begin + i) for i, at in enumerate(offsets)]
            for bits, index in pieces:
                state = queue.ranges.shared_state(number, bits)
                if state is not None and self._is_good(state, attempt, leased_at, now_ms):
                    messages = Messages(number, bits, state)
                    queue.set(messages, become(state), changes, now_ms)
                    settled.append((queue, messages))
                    continue
                offset = int(opened[index, HANDLE_OFFSET])
                is_done = state is None and offset < queue.ranges.next_offset
                problem = HandleProblem.ACKNOWLEDGED if is_done else HandleProblem.EXPIRED
                refused.append(Refusal(index, problem))
        if any(queue.ranges.nearest_ms < time_ms for queue, time_ms in nearest_ms.items()):
            changes.sooner.add((self.group, self.topic))
        return refused, settled

    def _is_good(self, state: State | None, attempt: int, leased_at: int, now_ms: int) -> bool:
        """Return whether a handle of an attempt is good for a message."""
        return (
            state is not None
            and state.kind in (LEASED, WAITING)
            and min(state.attempts, ATTEMPT_MAX) == attempt
            and state.leased_at == leased_at
            and self._owners.end_of(state) > now_ms
        )

    def dead_letters_of(
        self, settled: Iterable[tuple[LeasedQueue, Messages]]
    ) -> list[DeadMessages]:
        """Name the records of messages as dead letters, those of a queue together."""
        by_queue: dict[LeasedQueue, dict[int, int]] = {}
        for queue, (number, mask, state) in settled:
            attempts = dict.fromkeys(offsets_in(number, mask), state.attempts)
            by_queue.setdefault(queue, {}).update(attempts)
        found = []
        for queue, attempts in by_queue.items():
            name = queue.name
            offsets = np.array(sorted(attempts), np.int64)
            records = self._store.records_at(name.source, name.queue_id, offsets, max_bytes=1 << 62)
            times = [attempts[offset] for offset in records.queue_offsets.tolist()]
            found.append(
                DeadMessages(
                    name.source, name.queue_id, records.queue_offsets, records.commit_offsets,
                    np.array(times, np.int64),
                )
            )  # fmt: skip
        return found

    def end_dead_letters(self, dead: Iterable[DeadMessages], now_ms: int, changes: Changes) -> None:
        """Take dead letters that were copied for acknowledged."""
        for letters in dead:
            queue = self.queue_of(letters.topic, letters.queue_id)
            if queue is not None:
                nearest_ms = queue.ranges.nearest_ms
                queue.end_dead(letters.queue_offsets, changes, now_ms)
                if queue.ranges.nearest_ms < nearest_ms:
                    changes.sooner.add((self.group, self.topic))

    def end_gone(self, incarnations: Mapping[str, int], changes: Changes) -> None:
        """End the leases of queues whose topic was deleted since: nobody can acknowledge them.

        Where such a queue was stays known, and is not the group's offset any more.
        """
        for queue in self.queues:
            name = queue.name
            # A greater one than what was read is of a topic that was made again since.
            if name.incarnation < incarnations.get(name.source, name.incarnation):
                if queue.ranges.live_count:
                    queue.reset(queue.ranges.next_offset, NOWHERE, changes)
                if queue.committed_offset != queue.ranges.group_offset:
                    queue.note_committed(queue.ranges.group_offset, changes)

    def release(self, owners: Container[int], visible_at: int, changes: Changes) -> int:
        """Let all leases of some owners end at a time; return how many there were."""
        count = sum(queue.release(owners, visible_at, changes) for queue in self.queues)
        if count:
            changes.sooner.add((self.group, self.topic))
        return count

    def reset(
        self, next_offsets: Mapping[int, int], changes: Changes, *, drops_retries: bool
    ) -> None:
        """Let the group go on at queue offsets, by queue id; leases of those queues are no more."""
        targets = []
        for queue in self.queues:
            source, queue_id = queue.name.source, queue.name.queue_id
            next_offset = None if queue.kind else next_offsets.get(queue_id)
            if queue.kind and drops_retries:
                _, next_offset = self._store.bounds(source, queue_id)
            if next_offset is not None:
                last = self._store.place_before(source, queue_id, next_offset)
                targets.append((queue, next_offset, last))
        for queue, next_offset, last in targets:
            queue.reset(next_offset, last, changes)
        self._begin_anew(some_gone=True)
        changes.sooner.add((self.group, self.topic))

    def check_commit(self, offset: OffsetCommit) -> None:
        """Raise GroupInUse if a commit would set the group back while its members have messages."""
        queue = self.queue_of(offset.topic, offset.queue_id)
        if queue is not None and self.live_count:
            group_offset = queue.ranges.group_offset
            if offset.queue_offset < group_offset:
                raise GroupInUse(*offset[:3], group_offset=group_offset)

    def commit(self, offset: OffsetCommit, now_ms: int, changes: Changes) -> None:
        """Take over an offset that the group has committed, if it is in one of these queues."""
        queue = self.queue_of(offset.topic, offset.queue_id)
        if queue is not None:
            queue.commit(offset.queue_offset, queue.ranges.group_offset, changes, now_ms)
            self._begin_anew(some_gone=True)
        changes.sooner.add((self.group, self.topic))

    def progress(self, now_ms: int) -> list[QueueLeases]:
        """Return where the group is in each queue."""
        return [queue.progress(now_ms, self._owners) for queue in self.queues]
