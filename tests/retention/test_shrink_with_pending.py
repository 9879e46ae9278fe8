"""Read queues stay while messages that are stored already are to come there: delayed ones, and those of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from transaction_store import TransactionStore, message

from storage.errors import QueuesInUse
from storage.message import Message, PutResult


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[TransactionStore]:
    opened = TransactionStore(tmp_path / "store")
    opened.writer.create_topic("others", 4)
    yield opened
    opened.writer.close()


def put(store: TransactionStore, queue_id: int, topic: str = "orders", **delay: int) -> PutResult:
    (stored,) = store.writer.put([Message(topic=topic, body=b"x", queue_id=queue_id, **delay)])  # type: ignore[arg-type]
    return stored


def shrink(store: TransactionStore, count: int = 2, *, force: bool = False) -> None:
    store.writer.update_topic("orders", write_queue_count=count)
    store.writer.update_topic("orders", read_queue_count=count, force=force)


def test_pending_transactions_keep_their_queues_until_they_end(store: TransactionStore) -> None:
    store.prepare(message(b"one", "A", queue_id=3), message(b"two", "B", queue_id=3))
    store.prepare(message(b"three", "C"), message(b"four", "D", topic="others", queue_id=3))
    with pytest.raises(
        QueuesInUse, match="2 messages of pending transactions for queue 3, to be stored"
    ):
        shrink(store)
    store.end("A", commit=True)
    store.end("B", commit=False)
    shrink(store)
    assert store.end("C", "D", commit=True) == [("committed", 1, False)] * 2


@pytest.mark.parametrize("restarts", [False, True])
def test_delayed_messages_keep_their_queues_until_they_were_delivered(
    store: TransactionStore, restarts: bool
) -> None:
    put(store, 2, delay_level=1)
    put(store, 3, delay_ms=60_000)
    put(store, 3, delay_ms=61_000)
    put(store, 1, delay_ms=60_000)
    put(store, 3, "others", delay_ms=60_000)
    store.workers.settle()
    put(store, 3, delay_ms=62_000)  # not taken up yet
    if restarts:
        store.workers.settle()
        store.reopen()
    with pytest.raises(
        QueuesInUse, match="1 delayed message for queue 2, 3 delayed messages for queue 3, to be"
    ):
        shrink(store)
    store.clock.pass_ms(1_000)
    for _ in range(4):
        store.workers.settle()
    with pytest.raises(QueuesInUse, match=r"'orders': 3 delayed messages for queue 3, to be"):
        shrink(store)
    store.clock.pass_ms(70_000)
    for _ in range(4):
        store.workers.settle()
    shrink(store)
    assert [each.queue_id for each in store.records("orders")] == [2, 3, 1, 3, 3]


def test_with_force_they_come_to_a_queue_that_nobody_reads(store: TransactionStore) -> None:
    put(store, 3, delay_ms=60_000)
    store.prepare(message(b"one", "A", queue_id=3))
    shrink(store, force=True)
    store.end("A", commit=True)
    store.clock.pass_ms(60_000)
    for _ in range(4):
        store.workers.settle()
    assert [each.queue_id for each in store.records("orders")] == [3, 3]
    assert store.writer.update_topic("orders", queue_count=4).read_queue_count == 4
