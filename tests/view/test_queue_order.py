"""Where records stand in their queue: the rule by itself, on runs that were never in a file."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.view.log.walk import DamagedRange
from storage.view.queues.queue_order import QueueOrder, joined_damage
from storage.view.queues.record_queues import QueueRun
from storage.view.queues.units import UNIT_DTYPE, Units

KEY = ("t", 0)
SIZE = 100


def ordered(
    claims: list[int],
    held: dict[int, int] | None = None,
    damage: tuple[tuple[int, int], ...] = (),
    cuts: frozenset[int] = frozenset(),
    *,
    next_offset: int | None = None,
    missing: int | None = None,
    sure_offset: int | None = None,
) -> tuple[QueueOrder, set[int]]:
    """Return the order of a queue, and the numbers of the records that do not stand where they claim.

    Record n lies at commit offset 100 n; ``missing`` is not there. ``held`` has commit offsets of units. Runs
    are cut before the records in ``cuts``.
    """
    numbers = [number for number in range(len(claims) + 1) if number != missing]
    offsets, ranges = held or {}, [DamagedRange(begin, end, "") for begin, end in damage]
    order, without, begin = QueueOrder(next_offset), set[int](), 0

    def units(first: int, _: int) -> Units:
        end = max(offsets, default=first) + 1
        there = [(offsets[at], SIZE, 0) if at in offsets else (0, 0, 0) for at in range(first, end)]
        return np.array(there, UNIT_DTYPE)

    for end in range(1, len(claims) + 1):
        if end < len(claims) and claims[end] == claims[end - 1] + 1 and end not in cuts:
            continue
        places = numbers[begin] * SIZE, numbers[end - 1] * SIZE
        run = QueueRun(KEY, claims[begin], claims[end - 1] + 1, *places)
        seen = [each for each in ranges if each.begin_offset < places[0]]
        skipped = order.take(run, seen, lambda at, offset: offsets.get(at) == offset)
        without.update(numbers[begin : begin + skipped])
        begin = end
    order.finish(ranges, units, sure_offset=sure_offset)
    return order, without


@pytest.mark.parametrize(
    ("claims", "end", "suspects", "without"),
    [
        ([0, 1, 2, 3], 4, [], set()),
        ([5, 1, 2, 3], 4, [(0, 1), (1, 4)], set()),  # a wrong offset: first, in the middle, last
        ([0, 9, 2, 3], 4, [(1, 2)], {1}),
        ([0, 1, 0, 3], 4, [(2, 3)], {2}),
        ([0, 1, 2, 9], 4, [(3, 4)], {3}),
        ([0, 1, 2, 1], 4, [(3, 4)], {3}),
        ([1 << 62, 1, 2, 3], 4, [(0, 1)], {0}),
        ([0, 1, 7, 2, 3], 4, [], {2}),  # a record of another queue, claiming more, less, the next
        ([0, 1, 0, 2, 3], 4, [], {2}),
        ([0, 1, 2, 2, 3], 4, [], {3}),
        ([7, 0, 1, 2], 3, [], set()),
        ([-1, 0, 1], 2, [], {0}),
        ([0, 1, 2, 0, 1], 2, [], set()),  # the topic was created again
        ([0, 0, 1], 2, [], set()),
    ],
)
def test_claims_are_weighed_against_those_around_them(
    claims: list[int], end: int, suspects: list[tuple[int, int]], without: set[int]
) -> None:
    order, found = ordered(claims)
    assert (order.begin_offset, order.next_offset) == (0, end)
    assert (list(order.suspects()), found) == (suspects, without)
    assert order.is_straight == (claims == [0, 1, 2, 3])


def test_a_gap_stands_for_what_has_another_name() -> None:
    """If there is room for it, and two records agree on the claim after it."""
    for claims, end, gap in (
        ([0, 1, 3, 4], 5, (2, 3)),
        ([0, 1, 3], 3, (2, 3)),
        ([0, 1, 4, 5], 4, (2, 4)),
    ):
        order, _ = ordered(claims, missing=2)
        assert (order.next_offset, list(order.suspects())) == (end, [gap])


def test_a_gap_stands_for_what_is_damaged() -> None:
    order, _ = ordered([0, 1, 3], damage=((200, 300),), missing=2)
    assert (order.next_offset, list(order.suspects()), order.is_straight) == (4, [(2, 3)], True)
    order, _ = ordered([1, 2], damage=((0, 100),), missing=0)
    assert (order.begin_offset, list(order.suspects())) == (0, [(0, 1)])


def test_of_two_that_claim_one_place_the_unit_that_stands_there_decides() -> None:
    order, without = ordered([0, 1, 2, 2, 3], {2: 300})
    assert (order.next_offset, list(order.suspects()), without) == (4, [(2, 3)], set())


def test_a_topic_that_was_created_again_begins_with_one_record_whose_unit_stands_there() -> None:
    order, _ = ordered([0, 1, 2, 0], {0: 300})
    assert (order.next_offset, order.since) == (1, 201)
    assert ordered([0, 1, 2, 0])[0].next_offset == 4


def test_damaged_records_at_the_end_keep_the_places_that_were_durable() -> None:
    held, damage = {2: 200, 3: 300, 4: 400}, ((200, 500),)
    assert ordered([0, 1], held, damage)[0].next_offset == 5
    assert ordered([0, 1], held, damage, sure_offset=400)[0].next_offset == 4
    assert ordered([0, 1], held, damage, sure_offset=200)[0].next_offset == 2
    assert ordered([0, 1], held)[0].next_offset == 2


@given(
    st.lists(st.integers(-1, 12), min_size=1, max_size=14),
    st.dictionaries(st.integers(0, 12), st.integers(0, 13).map(SIZE.__mul__), max_size=6),
    st.sets(st.integers(1, 13)),
    st.sampled_from([None, 0, 2]),
)
def test_how_the_log_is_cut_into_runs_decides_nothing(
    claims: list[int], held: dict[int, int], cuts: set[int], next_offset: int | None
) -> None:
    whole, _ = ordered(claims, held, next_offset=next_offset)
    cut, _ = ordered(claims, held, cuts=frozenset(cuts), next_offset=next_offset)
    assert (cut.begin_offset, cut.next_offset) == (whole.begin_offset, whole.next_offset)


def test_damaged_ranges_that_touch_are_one() -> None:
    ranges = [(0, 10), (10, 30), (40, 50), (45, 60)]
    joined = joined_damage([DamagedRange(begin, end, "") for begin, end in ranges])
    assert [(each.begin_offset, each.end_offset) for each in joined] == [(0, 30), (40, 60)]
