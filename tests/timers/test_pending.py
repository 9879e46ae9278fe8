"""Pending rows are those that were added and not taken, by time, however they are kept in blocks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.timers.pending import PendingTimers

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


def test_many_rows_are_in_few_blocks() -> None:
    pending = PendingTimers()
    dice = np.random.default_rng(3)
    for batch in range(400):
        offsets = np.arange(batch * 1_000, batch * 1_000 + 1_000)
        pending.add(BASE_MS + dice.integers(0, 40 * DAY_MS, 1_000), offsets)
    assert len(pending) == 400_000
    assert len(pending.blocks) < 12
    assert sum(block.rows.nbytes for block in pending.blocks) == 8 * 400_000


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


def test_rows_that_are_taken_and_not_removed_yet_are_not_due() -> None:
    """Other threads ask while a step takes."""
    pending = PendingTimers()
    pending.add(np.array([5_000, 6_000]), np.array([1, 2]))
    (block,) = pending.blocks
    block.head = 1
    assert pending.next_due_ms() == 6_000
    block.head = 2
    assert pending.next_due_ms() is None
