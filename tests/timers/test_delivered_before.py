"""Copies that the log had at a start stand for one record each, however many are looked at together."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.timers.found import DeliveredBefore

IDENTITIES = st.lists(st.integers(-3, 6), max_size=40)


@given(IDENTITIES, st.lists(IDENTITIES, max_size=5))
def test_each_copy_is_met_once(copies: list[int], batches: list[list[int]]) -> None:
    before = DeliveredBefore(np.array(copies, np.int64))
    left = Counter(copies)
    for batch in batches:
        identities = np.array(batch, np.int64)
        expected = []
        for identity in batch:
            expected.append(left[identity] > 0)
            left[identity] -= left[identity] > 0
        met = before.has(identities)
        assert met.tolist() == expected
        before.take(identities[met])
        assert len(before._identities) == sum(1 for count in left.values() if count)
