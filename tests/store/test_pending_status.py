"""The writer's status says what is stored and not shown yet, and who holds the log for it."""

from __future__ import annotations

from pathlib import Path

from hand_store import HandStore, message

from storage.message import Message


def settle(store: HandStore) -> None:
    for _ in range(4):
        store.workers.settle()
        store.workers.step("timers")
    store.writer._engine.settle()
    store.writer._engine.checkpointer.checkpoint()


def test_status_counts_what_is_pending_and_says_who_holds_the_log(tmp_path: Path) -> None:
    store = HandStore(tmp_path / "store")
    settle(store)
    now = store.writer.status()
    assert (now.timers.pending_count, now.timers.next_due_ms, now.timers.late_ms) == (0, None, 0)
    assert (now.halves.pending_count, now.halves.oldest_ms) == (0, 0)
    assert now.needed_commit_offset == now.appended_offset

    began_ms = store.clock.now_ms()
    store.prepare(message(b"one", "A"), message(b"two", "B"), message(b"three", "C"))
    store.clock.pass_ms(5)
    store.writer.put([Message(topic="orders", body=b"later", delay_ms=1_000)])
    store.prepare(message(b"four", "D"))
    store.end("A", commit=True)
    settle(store)
    now = store.writer.status()
    assert (now.halves.pending_count, now.halves.oldest_ms) == (3, began_ms)
    assert (now.timers.pending_count, now.timers.next_due_ms, now.timers.late_ms) == (
        1, began_ms + 1_005, 0,
    )  # fmt: skip
    assert now.held_by == "transactions"
    assert now.needed_commit_offset == now.followers["transactions"] < now.followers["timers"]

    store.clock.pass_ms(1_400)
    assert store.writer.status().timers.late_ms == 400
    store.end("B", "C", "D", commit=False)
    settle(store)
    now = store.writer.status()
    assert (now.halves.pending_count, now.timers.pending_count, now.timers.late_ms) == (0, 0, 0)
    store.close()
