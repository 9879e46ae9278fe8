"""When messages come again, to the millisecond, and that whoever waits is told that time."""

from __future__ import annotations

from pathlib import Path

import pytest
from lease_store import GROUP, TOPIC, LeaseStore, bodies, put

from storage.format.backoff import CustomizedBackoff
from storage.leases.values import ReceivedBatch
from storage.tables.groups import GroupConfig

LEASE_MS = 30_000
STEPS = GROUP.changed(backoff=CustomizedBackoff((700, 9_000)))


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 1)
    return LeaseStore(tmp_path / "store")


def comes_again(store: LeaseStore, after_ms: int, group: GroupConfig = GROUP) -> ReceivedBatch:
    """Fail unless the only message is handed out so much later, no sooner, and that is foretold.

    Before a receive has found nothing, the foretold time may be too early, never too late.
    """
    nearest_ms = store.leases.nearest_ms(GROUP.name, TOPIC)
    assert nearest_ms is not None
    assert nearest_ms <= store.clock.ms + after_ms
    store.clock.pass_ms(after_ms - 1)
    assert store.receive(group=group).record_count == 0
    assert store.leases.nearest_ms(GROUP.name, TOPIC) == store.clock.ms + 1
    store.clock.pass_ms(1)
    again = store.receive(group=group, lease_ms=LEASE_MS)
    assert bodies(again) == [0]
    return again


def test_after_it_was_given_back_as_often_as_it_was_handed_out(store: LeaseStore) -> None:
    received = store.receive(group=STEPS, lease_ms=LEASE_MS)
    for delay_ms in (700, 9_000, 9_000):
        assert store.leases.give_back(STEPS, TOPIC, received.receipt_handles) == []
        (queue,) = store.leases.progress(STEPS, TOPIC)
        assert (queue.leased_count, queue.waiting_count) == (0, 1)
        received = comes_again(store, delay_ms, STEPS)
    assert received.attempts.tolist() == [4]


def test_what_comes_again_in_some_queues(tmp_path: Path) -> None:
    """Whoever receives from these alone is told their time, though something is due in another one."""
    put(tmp_path / "store", 2, queues=2)
    store = LeaseStore(tmp_path / "store")
    heard: list[tuple[str, ...]] = []
    store.leases.add_listener(lambda *names: heard.append(names))

    def nearest_ms(*queue_ids: int) -> int | None:
        return store.leases.nearest_ms(GROUP.name, TOPIC, queue_ids)

    store.receive(lease_ms=1_000, queue_ids=(1,))
    received = store.receive(lease_ms=LEASE_MS, queue_ids=(0,))
    due_ms = store.clock.ms + 1_000
    assert (nearest_ms(1), nearest_ms(0, 1), nearest_ms()) == (due_ms,) * 3
    assert (nearest_ms(0), nearest_ms(5)) == (store.clock.ms + LEASE_MS, None)

    store.clock.pass_ms(2_000)
    assert store.receive(queue_ids=(0,)).record_count == 0
    assert store.change(received.receipt_handles, 300) == []
    assert heard == [(GROUP.name, TOPIC)]
    assert (nearest_ms(0), nearest_ms()) == (store.clock.ms + 300, due_ms)
