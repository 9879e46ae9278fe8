"""Errors in the middle of a call: what has changed in memory by then is in the journal, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from lease_store import GROUP, TOPIC, LeaseStore, bodies, put

from storage.errors import StoreBusy


@pytest.fixture
def store(tmp_path: Path) -> LeaseStore:
    put(tmp_path / "store", 20, queues=2)
    return LeaseStore(tmp_path / "store")


def fails_at(call: Callable[..., object], number: int) -> Callable[..., object]:
    """Return a call that raises StoreBusy the so many-th time, from 0 on."""
    calls = iter(range(1_000))

    def maybe(*args: object, **named: object) -> object:
        if next(calls) == number:
            raise StoreBusy("too many open files", retry_delay_ms=1)
        return call(*args, **named)

    return maybe


def drained(store: LeaseStore) -> list[int]:
    """Return everything that comes after all leases have ended, once each."""
    store.clock.pass_ms(60_000)
    found = []
    while (batch := store.receive()).record_count:
        found += bodies(batch)
        store.acknowledge(batch.receipt_handles)
    return sorted(found)


@pytest.mark.parametrize("name", ["pull", "records_at"])
def test_nothing_is_lost_where_a_later_queue_cannot_be_read(
    store: LeaseStore, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    queues = store.reader if name == "pull" else store.leases.queues
    if name == "records_at":
        store.receive(20)
        store.clock.pass_ms(60_000)
    with monkeypatch.context() as patch:
        patch.setattr(queues, name, fails_at(getattr(queues, name), 1))
        with pytest.raises(StoreBusy):
            store.receive(32)
    put(store.directory, 20, queues=2)
    store.receive(32)
    before = store.leases.progress(GROUP, TOPIC)

    store.kill()

    assert store.leases.progress(GROUP, TOPIC) == before
    assert drained(store) == sorted(list(range(20)) * 2)


def test_offsets_are_written_after_what_they_follow_from_is_durable(store: LeaseStore) -> None:
    store.acknowledge(store.receive(20).receipt_handles)
    journal, synced = store.leases._journal, []
    save = store.reader.consumer_offsets.save
    store.reader.consumer_offsets.save = lambda: (
        synced.append(journal.synced_size == journal.size) or save()
    )

    store.leases.save_offsets()

    assert synced == [True]
    assert store.reader.committed_offsets(GROUP.name) == {TOPIC: {0: 10, 1: 10}}


def test_a_group_is_forgotten_with_its_offsets(store: LeaseStore) -> None:
    store.acknowledge(store.receive(20).receipt_handles)
    store.leases.save_offsets()
    store.leases.forget(GROUP.name)

    assert store.reader.committed_offsets(GROUP.name) == {}
    assert store.leases.topics_of(GROUP.name) == []
    assert sorted(bodies(store.receive(20))) == list(range(20))
