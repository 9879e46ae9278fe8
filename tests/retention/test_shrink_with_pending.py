"""Delayed messages, and those of transactions, come to the queue that they were sent to, also when it has gone."""

from __future__ import annotations

from pathlib import Path

from hand_store import HandStore, message

from storage.message import Message


def test_they_come_to_a_queue_that_nobody_reads(tmp_path: Path) -> None:
    store = HandStore(tmp_path / "store")
    store.writer.put([Message(topic="orders", body=b"x", queue_id=3, delay_ms=60_000)])
    store.prepare(message(b"one", "A", queue_id=3))
    store.writer.update_topic("orders", queue_count=2)
    store.end("A", commit=True)
    store.clock.pass_ms(60_000)
    for _ in range(4):
        store.workers.settle()
    assert [each.queue_id for each in store.records("orders")] == [3, 3]
    assert store.writer.update_topic("orders", queue_count=4).read_queue_count == 4
    store.close()
