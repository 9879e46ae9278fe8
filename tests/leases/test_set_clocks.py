"""Somebody sets the wall clock: leases and delays last as long as they were taken for, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from lease_store import LeaseStore, bodies, put

from storage.leases.values import HandleProblem

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
LEASE_MS = 30_000
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
