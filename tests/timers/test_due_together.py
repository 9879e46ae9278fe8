"""What is due together comes in the order of its times, however much it is and in whatever order it was sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from timer_store import NOW_MS, TimerStore

from storage.timers import worker

COUNT = 20
DUE_MS = NOW_MS + 5_000
BIG = b"x" * 3_000  # six of them are more than a step of a small store reads


def put_backwards(store: TimerStore, *, body: bytes = b"", settles: bool = False) -> list[bytes]:
    """Put messages, the last one first; return their bodies in the order of their times."""
    for number in range(COUNT):
        due_ms = DUE_MS - 100 * number
        store.put(b"%02d" % number + body, deliver_at_ms=due_ms, queue_id=0)
        if settles:
            store.settle()
    return [b"%02d" % number + body for number in reversed(range(COUNT))]


def test_more_than_a_step_takes_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "ROWS_MAX", 2)
    store = TimerStore(tmp_path)
    expected = put_backwards(store)
    store.pass_to(DUE_MS)
    for _ in range(COUNT):
        store.settle()
    assert store.bodies() == expected
    store.close()


@pytest.mark.parametrize("settles", [True, False])
def test_more_than_a_step_reads(tmp_path: Path, settles: bool) -> None:
    store = TimerStore(tmp_path)
    expected = put_backwards(store, body=BIG, settles=settles)
    store.pass_to(DUE_MS)
    assert store.bodies() == expected
    store.close()


def test_what_was_sent_while_others_were_due(tmp_path: Path) -> None:
    """It was not dispatched when they were."""
    store = TimerStore(tmp_path)
    store.put(b"second", deliver_at_ms=DUE_MS, queue_id=0)
    store.settle()
    store.clock.ms = DUE_MS - 20
    store.put(b"first", deliver_at_ms=DUE_MS - 10, queue_id=0)
    store.clock.ms = DUE_MS
    store.workers.step("timers")
    store.settle()
    assert store.bodies() == [b"first", b"second"]
    store.close()
