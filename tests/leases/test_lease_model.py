"""Leases beside a model of dictionaries: what is handed out when, to the message and the attempt."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)
from lease_store import GROUP, ORDERLY, TOPIC, LeaseStore, bodies, put_messages
from steps_to_try import examples_to_try

from storage import Message
from storage.errors import GroupInUse
from storage.leases.ranges import BLOCKED, offsets_in
from storage.leases.values import HandleProblem, OffsetCommit

QUEUES = 2
MESSAGES = 60
KEYS = 4  # message groups, and messages without one
LEASE_MS = 60_000
EXAMPLES = int(os.environ.get("LEASE_EXAMPLES", examples_to_try(40, 2)))
ATTEMPTS_MAX = 4
HANDLE = 40


@dataclass
class Row:
    """A message that was handed out, or waits for its message group."""

    visible_at: int
    attempts: int
    leased_at: int
    is_dead: bool = False
    waits: bool = False
    journalled_at: int = 0  # visible_at as the journal has it: what is dead is not in it
    is_dead_in_journal: bool = False
    is_given_back: bool = False

    def until(self, visible_at: int) -> None:
        self.visible_at = self.journalled_at = visible_at
        self.is_dead_in_journal = False


@dataclass
class ModelQueue:
    next_offset: int = 0
    rows: dict[int, Row] = field(default_factory=dict)


def key_of(queue_id: int, offset: int) -> int:
    return (offset * 7 + queue_id) % KEYS


class Handle(tuple):
    """Queue id, offset, attempt, time of the lease, and the bytes."""


class LeaseMachine(RuleBasedStateMachine):
    """One group in one topic; each receive asks one queue."""

    is_orderly = False
    template: Path

    handles = Bundle("handles")

    @initialize()
    def begin(self) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="leases-"))
        shutil.copytree(self.template, self.home / "store")
        self.store = LeaseStore(self.home / "store")
        self.group = (ORDERLY if self.is_orderly else GROUP).changed(
            retry_max_times=ATTEMPTS_MAX - 1
        )
        self.store.reader.groups.create(self.group)
        self.queues = [ModelQueue() for _ in range(QUEUES)]
        self.dead_at: dict[int, list] = {}

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.leases.close()
            self.store.reader.close()
            shutil.rmtree(self.home)

    @property
    def now(self) -> int:
        return self.store.clock.ms

    # ---- the model

    def is_blocked(self, queue_id: int, offset: int) -> bool:
        return self.is_orderly and any(
            before < offset and key_of(queue_id, before) == key_of(queue_id, offset)
            for before in self.queues[queue_id].rows
        )

    def unblock(self, queue_id: int) -> None:
        for offset, row in sorted(self.queues[queue_id].rows.items()):
            if row.waits and not self.is_blocked(queue_id, offset):
                row.waits, row.visible_at = False, self.now

    def expected(self, queue_id: int, count: int) -> tuple[list[tuple[int, int]], list[int]]:
        """What a receive is to hand out, with attempts, and what it is to name as dead."""
        queue = self.queues[queue_id]
        found, dead, taken = [], [], 0
        for offset, row in sorted(queue.rows.items()):
            if row.waits or row.visible_at > self.now or taken == count:
                continue
            taken += 1
            if row.is_dead or row.attempts >= ATTEMPTS_MAX:
                row.is_dead, row.visible_at = True, self.now + 30_000
                dead.append(offset)
            else:
                row.attempts += 1
                row.is_given_back = False
                row.until(self.now + LEASE_MS)
                row.leased_at = self.now
                found.append((offset, row.attempts))
        while len(found) < count and queue.next_offset < MESSAGES:
            offset = queue.next_offset
            if self.is_blocked(queue_id, offset):
                queue.rows[offset] = Row(0, 0, 0, waits=True)
            else:
                queue.rows[offset] = Row(0, 1, self.now)
                queue.rows[offset].until(self.now + LEASE_MS)
                found.append((offset, 1))
            queue.next_offset += 1
        return found, dead

    def problem(self, handle: Handle) -> HandleProblem | None:
        queue_id, offset, attempt, leased_at, _ = handle
        queue = self.queues[queue_id]
        row = queue.rows.get(offset)
        if row is None:
            done = offset < queue.next_offset
            return HandleProblem.ACKNOWLEDGED if done else HandleProblem.EXPIRED
        is_held = not row.is_dead and (row.attempts, row.leased_at) == (attempt, leased_at)
        return None if is_held and row.visible_at > self.now else HandleProblem.EXPIRED

    # ---- what is done to both

    @rule(
        target=handles,
        queue_id=st.integers(0, QUEUES - 1),
        count=st.sampled_from([1, 2, 7, 32]),
    )
    def receive(self, queue_id: int, count: int):
        batch = self.store.receive(count, self.group, queue_ids=(queue_id,), lease_ms=LEASE_MS)
        found, dead = self.expected(queue_id, count)

        assert list(zip(bodies(batch), batch.attempts.tolist(), strict=True)) == found
        named = [offset for each in batch.dead for offset in each.queue_offsets.tolist()]
        assert named == dead
        if batch.dead:
            self.dead_at.setdefault(queue_id, []).extend(batch.dead)
        return multiple(
            *(
                Handle(
                    (
                        queue_id,
                        offset,
                        attempt,
                        self.now,
                        batch.receipt_handles[i * HANDLE :][:HANDLE],
                    )
                )
                for i, (offset, attempt) in enumerate(found)
            )
        )

    @rule(chosen=st.lists(handles, max_size=8))
    def acknowledge(self, chosen: list[Handle]) -> None:
        refused = dict(self.store.acknowledge(b"".join(handle[4] for handle in chosen)))
        for number, handle in enumerate(chosen):
            assert refused.get(number) == self.problem(handle)
            if number not in refused:
                del self.queues[handle[0]].rows[handle[1]]
        for queue_id in range(QUEUES):
            self.unblock(queue_id)

    @rule(chosen=st.lists(handles, max_size=4), ms=st.sampled_from([0, 1_000, 100_000]))
    def change(self, chosen: list[Handle], ms: int) -> None:
        refused = dict(self.store.change(b"".join(handle[4] for handle in chosen), ms))
        for number, handle in enumerate(chosen):
            assert refused.get(number) == self.problem(handle)
            if number not in refused:
                row = self.queues[handle[0]].rows[handle[1]]
                row.is_given_back = False
                row.until(self.now + ms)

    @rule(chosen=st.lists(handles, max_size=4))
    def give_back(self, chosen: list[Handle]) -> None:
        given = b"".join(handle[4] for handle in chosen)
        refused = dict(self.store.leases.give_back(self.group, TOPIC, given))
        for number, handle in enumerate(chosen):
            assert refused.get(number) == self.problem(handle)
            if number not in refused:
                row = self.queues[handle[0]].rows[handle[1]]
                row.is_given_back = True
                row.until(self.now + self.group.backoff.delay_ms(row.attempts))

    @rule(chosen=consumes(handles))
    def forward_to_the_dead_letters(self, chosen: Handle) -> None:
        dead, refused = self.store.leases.dead_letter(GROUP.name, TOPIC, chosen[4])
        problem = self.problem(chosen)
        assert [each.problem for each in refused] == ([problem] if problem else [])
        if problem is None:
            (letters,) = dead
            assert letters.queue_offsets.tolist() == [chosen[1]]
            row = self.queues[chosen[0]].rows[chosen[1]]
            row.is_dead, row.visible_at = True, self.now + 30_000
            self.dead_at.setdefault(chosen[0], []).append(letters)

    @rule(queue_id=st.integers(0, QUEUES - 1))
    def confirm_dead_letters(self, queue_id: int) -> None:
        letters = self.dead_at.pop(queue_id, [])
        self.store.leases.end_dead_letters(GROUP.name, TOPIC, letters)
        rows = self.queues[queue_id].rows
        for offset in [offset for each in letters for offset in each.queue_offsets.tolist()]:
            if offset in rows and rows[offset].is_dead:
                del rows[offset]
        self.unblock(queue_id)

    @rule(ms=st.sampled_from([1, 999, 30_000, 60_000, 200_000]))
    def let_time_pass(self, ms: int) -> None:
        self.store.clock.pass_ms(ms)

    @rule(queue_id=st.integers(0, QUEUES - 1), offset=st.integers(0, MESSAGES))
    def reset(self, queue_id: int, offset: int) -> None:
        self.store.leases.reset(self.group, TOPIC, {queue_id: offset})
        self.queues[queue_id] = ModelQueue(offset)
        self.dead_at.pop(queue_id, None)

    @rule(queue_id=st.integers(0, QUEUES - 1), offset=st.integers(0, MESSAGES))
    def commit(self, queue_id: int, offset: int) -> None:
        commit = OffsetCommit(self.group.name, TOPIC, queue_id, offset)
        [outcome] = self.store.leases.commit([commit])
        queue = self.queues[queue_id]
        sets_back = offset < min(queue.rows, default=queue.next_offset)
        if sets_back and any(each.rows for each in self.queues):
            assert isinstance(outcome, GroupInUse)
            return
        assert outcome is None
        if sets_back:
            self.queues[queue_id] = ModelQueue(offset)
        else:
            queue.next_offset = max(queue.next_offset, offset)
            queue.rows = {at: row for at, row in queue.rows.items() if at >= offset}
            self.unblock(queue_id)
        assert self.store.reader.committed_offset(self.group.name, TOPIC, queue_id) == offset

    @rule()
    def save_offsets(self) -> None:
        self.store.leases.save_offsets()

    @rule()
    def compact(self) -> None:
        self.store.leases.compact(always=True)
        for queue in self.queues:
            for row in queue.rows.values():
                row.journalled_at, row.is_dead_in_journal = row.visible_at, row.is_dead

    @rule(kills=st.booleans())
    def start_again(self, kills: bool) -> None:
        """Dead letters that were not confirmed are due again, as the messages that they are."""
        if kills:
            self.store.kill()
        else:
            self.store.reopen()
        self.dead_at.clear()
        for queue in self.queues:
            for row in queue.rows.values():
                if row.is_dead:
                    row.is_dead, row.visible_at = row.is_dead_in_journal, row.journalled_at

    @invariant()
    def progress_is_the_same(self) -> None:
        if not hasattr(self, "store"):
            return
        found = {each.queue_id: each for each in self.store.leases.progress(self.group, TOPIC)}
        for queue_id, queue in enumerate(self.queues):
            assert found[queue_id].next_offset == queue.next_offset
            assert found[queue_id].group_offset == min(queue.rows, default=queue.next_offset)
            leased = sum(
                not row.waits
                and not row.is_dead
                and not row.is_given_back
                and row.leased_at > 0
                and row.visible_at > self.now
                for row in queue.rows.values()
            )
            assert found[queue_id].leased_count == leased
            assert found[queue_id].waiting_count == len(queue.rows) - leased
        for held in self.store.leases._topics[self.group.name, TOPIC].queues:
            blocked = {
                offset
                for number, mask, state in held.ranges.all()
                if state.kind == BLOCKED
                for offset in offsets_in(number, mask)
            }
            queue_id = held.name.queue_id
            assert blocked == {
                offset
                for offset, row in self.queues[queue_id].rows.items()
                if row.waits and self.is_blocked(queue_id, offset)
            }


@pytest.mark.parametrize("is_orderly", [False, True], ids=["plain", "orderly"])
def test_leases_do_what_the_model_does(
    tmp_path: Path, is_orderly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [
        Message(
            topic=TOPIC, body=b"%d" % offset, queue_id=queue_id,
            properties={"__SHARDINGKEY": f"k{key}"} if (key := key_of(queue_id, offset)) else {},
        )
        for offset in range(MESSAGES)
        for queue_id in range(QUEUES)
    ]  # fmt: skip
    put_messages(tmp_path / "store", messages, queues=QUEUES)
    monkeypatch.setattr(LeaseMachine, "is_orderly", is_orderly)
    monkeypatch.setattr(LeaseMachine, "template", tmp_path / "store", raising=False)
    run_state_machine_as_test(
        LeaseMachine,
        settings=settings(
            max_examples=EXAMPLES, stateful_step_count=30, deadline=None,
            suppress_health_check=list(HealthCheck), database=None,
        ),
    )  # fmt: skip
