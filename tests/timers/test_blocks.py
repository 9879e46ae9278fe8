"""Pending rows are those that were added and not taken, by time, however they are kept in blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_filesystem import full as no_space
from hand_store import NOW_MS, TimerStore
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.timers.blocks import PendingTimers

DAY_MS = 86_400_000


BASE_MS = 1_700_000_000_000


@given(
    st.lists(
        st.one_of(
            st.lists(st.integers(0, 3 * DAY_MS), min_size=1, max_size=30),
            st.tuples(st.integers(0, 3 * DAY_MS), st.integers(1, 12)),
        ),
        max_size=25,
    )
)  # fmt: skip
@settings(max_examples=200, deadline=None)
def test_rows_come_by_time_and_each_once(steps: list[list[int] | tuple[int, int]]) -> None:
    pending = PendingTimers()
    model: list[tuple[int, int]] = []
    next_offset = 5
    for step in steps:
        if isinstance(step, list):
            offsets = np.arange(next_offset, next_offset + len(step))
            dues = BASE_MS + np.array(step)
            next_offset += len(step)
            pending.add(dues, offsets)
            model += zip(dues.tolist(), offsets.tolist(), strict=True)
            model.sort()
        else:
            now_ms, count_max = BASE_MS + step[0], step[1]
            due = pending.due(now_ms, count_max)
            wanted = [row for row in model if row[0] <= now_ms][:count_max]
            got = zip(due.dues_ms.tolist(), due.queue_offsets.tolist(), strict=True)
            assert list(got) == wanted
            pending.take(due)
            model = [row for row in model if row not in wanted]
        assert len(pending) == len(model)
        assert pending.next_due_ms() == (model[0][0] if model else None)
        first = pending.first_queue_offset()
        assert first is None or first <= min(offset for _, offset in model)
        assert pending.counts(np.empty(0, np.int64)).tolist() == []
        edges = np.array([BASE_MS + DAY_MS, BASE_MS + 2 * DAY_MS])
        assert pending.counts(edges).tolist() == [
            sum(due_ms < edge for due_ms, _ in model) for edge in edges.tolist()
        ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_queue_offsets_far_apart_are_what_they_were(halves: list[int]) -> None:
    """Further than a row has bits for."""
    pending = PendingTimers()
    offsets = np.array([half * (1 << 31) + place for place, half in enumerate(halves)])
    dues = BASE_MS + np.arange(len(offsets))
    pending.add(dues[:3], offsets[:3])
    pending.add(dues[3:], offsets[3:])
    due = pending.due(BASE_MS + DAY_MS, 100)
    assert due.queue_offsets.tolist() == offsets.tolist()
    assert due.dues_ms.tolist() == dues.tolist()
    pending.take(due)
    assert len(pending) == 0


def needed(store: TimerStore) -> int | None:
    return store.writer.followers.offsets().get("timers")


def test_nothing_is_given_up_within_a_step(
    store: TimerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first record is due and a later one is not, and rows are between two blocks meanwhile."""
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
        full.setattr("storage.timers.delivery.planned", no_space)
        full.setattr("storage.timers.progress._resumed", no_space)
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
