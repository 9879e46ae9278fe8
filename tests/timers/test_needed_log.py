"""What delayed messages need of the log is held for them: in each moment, and by a number that is at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from timer_store import NOW_MS, TimerStore

from storage.errors import StoreFull
from storage.timers.pending import PendingTimers


def needed(store: TimerStore) -> int | None:
    return store.writer.followers.offsets().get("timers")


def test_nothing_is_given_up_within_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first record is due and a later one is not, and rows are between two blocks meanwhile."""
    store = TimerStore(tmp_path)
    store.put(b"stays", delay_ms=60_000, queue_id=0)
    store.settle()
    assert needed(store) == 0
    seen = []
    for name in ("add", "take"):
        original = getattr(PendingTimers, name)

        def watched(self: PendingTimers, *args: Any, original: Any = original) -> None:
            seen.append(needed(store))
            blocks, self.blocks = self.blocks, []
            seen.append(needed(store))  # as between the removal of a block and its merger
            self.blocks = blocks
            original(self, *args)
            seen.append(needed(store))

        monkeypatch.setattr(PendingTimers, name, watched)
    store.put(b"soon", delay_ms=1_000, queue_id=0)
    store.pass_to(NOW_MS + 1_000)
    assert store.bodies() == [b"soon"]
    assert seen and set(seen) == {0}
    store.pass_to(NOW_MS + 60_000)
    assert needed(store) is None
    store.close()


def test_everything_is_held_until_it_is_known_what_is_pending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TimerStore(tmp_path)
    store.put(b"level", delay_level=3, queue_id=0)
    store.settle()
    store.close()
    store = TimerStore(tmp_path)
    assert needed(store) == 0
    with monkeypatch.context() as full:

        def refuse(*_: object, **__: object) -> None:
            raise StoreFull("no space")

        full.setattr("storage.timers.delivery.planned", refuse)
        full.setattr("storage.timers.worker.resumed", refuse)
        store.workers.step("timers")
        assert needed(store) == 0
    store.pass_to(NOW_MS + 60_000)
    assert store.bodies() == [b"level"]
    assert needed(store) is None
    store.close()


def test_a_record_is_held_until_its_copy_is_durable(tmp_path: Path) -> None:
    store = TimerStore(tmp_path, flush_mode="async")
    store.put(b"soon", delay_ms=1_000, queue_id=0)
    store.settle()
    assert needed(store) == 0
    store.clock.ms += 1_000
    store.workers.step("timers")
    assert store.writer.timers.counts.delivered == 1
    assert store.writer.status().flushed_offset < store.writer.appended_offset
    assert needed(store) == 0
    store.workers.step("flush")
    assert needed(store) is None
    store.close()
