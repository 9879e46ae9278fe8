"""A message group's queue is the one that a broker's proxy chooses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.gateway.messages.queue_choice import consistent_hash, queue_of_message_group

# Of Guava's own tests: values 0 to 19 in 100 buckets, and large ones.
OF_100 = [0, 55, 62, 8, 45, 59, 86, 97, 82, 59, 73, 37, 17, 56, 86, 21, 90, 37, 38, 83]
LARGE = [
    (10863919174838991, 11, 6),
    (2016238256797177309, 11, 3),
    (1673758223894951030, 11, 5),
    (2, 100001, 80343),
    (2201, 100001, 22152),
    (2202, 100001, 15018),
]


def test_the_buckets_are_guavas() -> None:
    assert [consistent_hash(value, 100) for value in range(20)] == OF_100


@pytest.mark.parametrize(("value", "buckets", "bucket"), LARGE)
def test_large_values_and_counts_too(value: int, buckets: int, bucket: int) -> None:
    assert consistent_hash(value, buckets) == bucket


@given(st.text(min_size=1, max_size=63), st.integers(1, 200))
def test_one_queue_more_moves_a_group_there_or_nowhere(message_group: str, count: int) -> None:
    before = queue_of_message_group(message_group, count)
    after = queue_of_message_group(message_group, count + 1)

    assert 0 <= before < count
    assert after in (before, count)
