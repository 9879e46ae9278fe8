"""Somebody sets the wall clock: leases and delays last as long as they were taken for, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from lease_store import GROUP, ORDERLY, TOPIC, LeaseStore, bodies, put

from services.reader.leases import ReaderLeases
from storage.leases.values import HandleProblem, ReceiveQuestion
from storage.tables.backoff import CustomizedBackoff

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
LEASE_MS = 30_000
BACKOFF_MS = 9_000
STEPS = GROUP.changed(backoff=CustomizedBackoff((BACKOFF_MS,)))
JUMPS = pytest.mark.parametrize("jump_ms", [-DAY_MS, YEAR_MS], ids=["back", "forward"])
RESTARTS = pytest.mark.parametrize("how", ["reopen", "kill"])


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 2)
    return LeaseStore(tmp_path / "store")


# ---- while leases are open


@JUMPS
def test_a_lease_ends_after_its_time_and_its_handle_is_good_until_then(
    store: LeaseStore, jump_ms: int
) -> None:
    first = store.receive(1, lease_ms=LEASE_MS)
    second = store.receive(1, lease_ms=LEASE_MS)
    store.clock.set_by(jump_ms)
    store.clock.pass_ms(LEASE_MS - 1)
    assert store.receive().record_count == 0
    assert store.acknowledge(first.receipt_handles) == []
    store.clock.pass_ms(1)
    again = store.receive()
    assert (bodies(again), again.attempts.tolist()) == (bodies(second), [2])
    assert [each.problem for each in store.acknowledge(second.receipt_handles)] == [
        HandleProblem.EXPIRED
    ]
    assert store.acknowledge(again.receipt_handles) == []


@JUMPS
def test_what_is_given_back_waits_as_long_as_its_group_says(
    store: LeaseStore, jump_ms: int
) -> None:
    received = store.receive(group=STEPS, lease_ms=LEASE_MS)
    assert store.leases.give_back(STEPS, TOPIC, received.receipt_handles) == []
    store.clock.set_by(jump_ms)
    store.clock.pass_ms(BACKOFF_MS - 1)
    assert store.receive(group=STEPS).record_count == 0
    store.clock.pass_ms(1)
    assert bodies(store.receive(group=STEPS)) == [0, 1]


@JUMPS
def test_renewed_leases_last_while_they_are_renewed(store: LeaseStore, jump_ms: int) -> None:
    received = store.receive(lease_ms=LEASE_MS, client_id="slow")
    for _ in range(4):
        store.clock.pass_ms(LEASE_MS // 2)
        assert store.leases.renew(["slow"]) == 1
        store.clock.set_by(jump_ms)
        assert store.receive().record_count == 0
    store.clock.pass_ms(LEASE_MS)
    assert store.receive().record_count == 2
    assert len(store.acknowledge(received.receipt_handles)) == 2


@JUMPS
def test_members_are_told_the_end_by_the_wall_clock(store: LeaseStore, jump_ms: int) -> None:
    leases = ReaderLeases(store.reader, store.leases, auto_create_groups=True)
    question = ReceiveQuestion(max_messages=1, lease_ms=LEASE_MS)
    received = leases.begin_receiving(GROUP.name, TOPIC, question)
    assert received.lease_end_ms == store.clock.now_ms() + LEASE_MS
    store.clock.set_by(jump_ms)
    received = leases.begin_receiving(GROUP.name, TOPIC, question)
    assert received.lease_end_ms == store.clock.now_ms() + LEASE_MS
    _, end_ms = leases.change(GROUP.name, TOPIC, received.receipt_handles, 5_000)
    assert end_ms == store.clock.now_ms() + 5_000


# ---- while nobody runs


@RESTARTS
def test_behind_a_clock_that_was_set_back_a_lease_is_as_long_as_it_was_at_most(
    store: LeaseStore, how: str
) -> None:
    first = store.receive(1, lease_ms=LEASE_MS)
    second = store.receive(1, lease_ms=LEASE_MS)
    store.clock.pass_ms(1_000)
    store.clock.set_by(-DAY_MS)
    getattr(store, how)()
    assert store.receive().record_count == 0
    assert store.acknowledge(first.receipt_handles) == []
    store.clock.pass_ms(LEASE_MS)
    again = store.receive(lease_ms=LEASE_MS)
    assert (bodies(again), again.attempts.tolist()) == (bodies(second), [2])
    getattr(store, how)()  # what was leased since has its own time
    store.clock.pass_ms(LEASE_MS - 1)
    assert store.receive().record_count == 0
    store.clock.pass_ms(1)
    assert bodies(store.receive()) == bodies(second)


@RESTARTS
def test_behind_it_a_renewal_counts_for_a_lease_and_the_next_one_for_more(
    tmp_path: Path, how: str
) -> None:
    put(tmp_path / "store", 1)
    store = LeaseStore(tmp_path / "store", lease_ms=LEASE_MS)
    store.receive(lease_ms=LEASE_MS, client_id="lives")
    store.clock.pass_ms(LEASE_MS // 2)
    assert store.leases.renew(["lives"]) == 1
    store.clock.set_by(-DAY_MS)
    getattr(store, how)()
    for _ in range(4):
        store.clock.pass_ms(LEASE_MS // 2)
        assert store.leases.renew(["lives"]) == 1
        assert store.receive().record_count == 0
    store.clock.pass_ms(LEASE_MS)  # it has died
    assert store.receive().record_count == 1


@RESTARTS
def test_behind_it_what_the_dead_had_renewed_ends(tmp_path: Path, how: str) -> None:
    put(tmp_path / "store", 1)
    store = LeaseStore(tmp_path / "store", lease_ms=LEASE_MS)
    store.receive(lease_ms=LEASE_MS, client_id="dies")
    store.clock.pass_ms(LEASE_MS // 2)
    assert store.leases.renew(["dies"]) == 1
    store.clock.set_by(-DAY_MS)
    getattr(store, how)()
    assert store.receive().record_count == 0
    store.clock.pass_ms(LEASE_MS)
    assert store.receive().record_count == 1


@RESTARTS
def test_before_a_clock_that_was_set_forward_leases_have_ended(store: LeaseStore, how: str) -> None:
    received = store.receive(lease_ms=LEASE_MS)
    store.clock.set_by(YEAR_MS)
    getattr(store, how)()
    assert [each.problem for each in store.acknowledge(received.receipt_handles)] == [
        HandleProblem.EXPIRED
    ] * 2
    again = store.receive(lease_ms=LEASE_MS)
    assert (bodies(again), again.attempts.tolist()) == ([0, 1], [2, 2])
    store.clock.set_by(-YEAR_MS)  # it was wrong
    getattr(store, how)()
    assert store.receive().record_count == 0
    store.clock.pass_ms(LEASE_MS)
    assert bodies(store.receive()) == [0, 1]


@RESTARTS
@JUMPS
def test_a_message_group_goes_on_in_its_order(store: LeaseStore, jump_ms: int, how: str) -> None:
    assert bodies(store.receive(group=ORDERLY, lease_ms=LEASE_MS)) == [0]
    store.clock.set_by(jump_ms)
    getattr(store, how)()
    assert store.leases.group_counts() != []  # they are open
    store.clock.pass_ms(LEASE_MS)
    for number in range(2):
        received = store.receive(group=ORDERLY)
        assert bodies(received) == [number]
        assert store.acknowledge(received.receipt_handles) == []
    (queue,) = store.leases.progress(ORDERLY, TOPIC)
    assert (queue.group_offset, queue.leased_count, queue.waiting_count) == (2, 0, 0)
