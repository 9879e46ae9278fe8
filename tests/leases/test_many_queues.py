"""A topic of many queues: those that got nothing are not looked at for each receive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lease_store import GROUP, TOPIC, LeaseStore, bodies, put_messages

from storage import Message
from storage.leases.queues import StoreQueues

QUEUES = 64


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> LeaseStore:
    store_to(tmp_path / "store", *range(QUEUES))
    return LeaseStore(tmp_path / "store")


@pytest.fixture(name="pulled")
def _pulled(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often each queue was pulled from."""
    counts: Counter[int] = Counter()
    pull = StoreQueues.pull

    def counted(queues: StoreQueues, topic: str, queue_id: int, *offset: int, **limits: Any) -> Any:
        counts[queue_id] += 1
        return pull(queues, topic, queue_id, *offset, **limits)

    monkeypatch.setattr(StoreQueues, "pull", counted)
    return counts


def store_to(directory: Path, *queue_ids: int) -> None:
    messages = [Message(topic=TOPIC, body=b"%d" % each, queue_id=each) for each in queue_ids]
    put_messages(directory, messages, queues=QUEUES)


def test_queues_at_their_end_are_left_alone_until_they_get_messages(
    store: LeaseStore, pulled: Counter[int]
) -> None:
    received = store.receive(2 * QUEUES)
    assert sorted(bodies(received)) == list(range(QUEUES))
    assert store.acknowledge(received.receipt_handles) == []
    assert store.receive().record_count == 0
    pulled.clear()

    assert store.receive().record_count == 0
    assert not pulled
    store_to(store.directory, 7, 41, 7)
    assert sorted(bodies(store.receive())) == [7, 7, 41]
    assert set(pulled) == {7, 41}


def test_all_queues_are_looked_at_once_a_second(store: LeaseStore, pulled: Counter[int]) -> None:
    """Whatever has become visible in them without a message that was stored."""
    store.receive(2 * QUEUES)
    pulled.clear()
    store.receive()
    store.clock.pass_ms(1_000)
    store.receive()

    assert set(pulled) == set(range(QUEUES))


def test_a_full_answer_leaves_the_others_for_the_next(store: LeaseStore) -> None:
    seen = [number for _ in range(QUEUES // 8) for number in bodies(store.receive(8))]
    assert sorted(seen) == list(range(QUEUES))


def test_a_reset_and_leases_that_end_are_met(store: LeaseStore) -> None:
    first = store.receive(2 * QUEUES, lease_ms=5_000)
    store.receive()
    store.clock.pass_ms(1)
    store.leases.reset(GROUP, TOPIC, {3: 0})
    assert bodies(store.receive()) == [3]

    store.clock.pass_ms(4_999)
    again = store.receive(2 * QUEUES)
    assert len(store.acknowledge(first.receipt_handles)) == QUEUES
    assert sorted(bodies(again)) == [each for each in range(QUEUES) if each != 3]
    assert store.acknowledge(again.receipt_handles) == []
