"""Where records belong in their queue: the rule by itself, on runs that were never in a file."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.view.log.walk import DamagedRange
from storage.view.queues.placing import (
    Begins,
    Gap,
    HeldUnits,
    Placed,
    QueuePlacer,
    Withdrawn,
    joined_damage,
    settle_ends,
)
from storage.view.queues.runs import QueueRun
from storage.view.queues.unit_search import NO_UNIT, Unit
from storage.view.queues.units import UNIT_DTYPE, Units

KEY = ("t", 0)
SIZE = 100


class Held:
    """Units that stood in the queue before, by queue offset."""

    def __init__(self, offsets: dict[int, int]) -> None:
        self._offsets = offsets

    def unit(self, queue_offset: int) -> Unit:
        offset = self._offsets.get(queue_offset)
        return NO_UNIT if offset is None else Unit(offset, SIZE, 0)

    def units(self, first: int, count: int) -> Units:
        end = min(first + count, max(self._offsets, default=0) + 1)
        return np.array([self.unit(at) for at in range(first, end)], UNIT_DTYPE)


def placed(
    claims: list[int],
    held: dict[int, int] | None = None,
    damage: tuple[tuple[int, int], ...] = (),
    cuts: frozenset[int] = frozenset(),
    *,
    next_offset: int | None = None,
    missing: int | None = None,
    sure_offset: int | None = None,
) -> dict[int, int | str]:
    """Return what stands at each queue offset: a record's number in the log, or a gap.

    Record n lies at commit offset 100 n; ``missing`` is not there. Runs are cut before the records in
    ``cuts``, and all that can be is settled there.
    """
    numbers = [number for number in range(len(claims) + 1) if number != missing]
    ranges: list[DamagedRange] = []
    waiting = [DamagedRange(begin, end, "") for begin, end in damage]
    in_files: Any = Held(held or {})
    placer = QueuePlacer(KEY, HeldUnits(lambda _: in_files), ranges, next_offset=next_offset)
    found: dict[int, int | str] = {}

    def carry_out(step: Any) -> None:
        if isinstance(step, Begins):
            found.clear()
        elif isinstance(step, Gap):
            found.update(dict.fromkeys(range(step.begin, step.end), "gap"))
        elif isinstance(step, Withdrawn):
            assert found.pop(step.place) == step.commit_offset // SIZE
        elif isinstance(step, Placed) and step.place >= 0:
            first = bisect_left(numbers, step.run.commit_offset, key=SIZE.__mul__)
            for at in range(step.run.end - step.run.begin):
                found[step.place + at] = numbers[first + at]

    begin = 0
    for end in range(1, len(claims) + 1):
        if end < len(claims) and claims[end] == claims[end - 1] + 1 and end not in cuts:
            continue
        commit_offset, last_commit_offset = numbers[begin] * SIZE, numbers[end - 1] * SIZE
        while waiting and waiting[0].begin_offset < commit_offset:
            ranges.append(waiting.pop(0))
        run = QueueRun(KEY, claims[begin], claims[end - 1] + 1, commit_offset, last_commit_offset)
        placer.take(run)
        if end in cuts:
            for step in placer.settle():
                carry_out(step)
        begin = end
    ranges += waiting
    for _, step in settle_ends({KEY: placer}, sure_offset=sure_offset):
        carry_out(step)
    assert placer.next_offset == (max(found) + 1 if found else placer.begin_offset or 0)
    return found


@pytest.mark.parametrize(
    ("claims", "records"),
    [
        ([0, 1, 2, 3], [0, 1, 2, 3]),
        ([5, 1, 2, 3], [0, 1, 2, 3]),  # a wrong offset: first, in the middle, last
        ([0, 9, 2, 3], [0, 1, 2, 3]),
        ([0, 1, 0, 3], [0, 1, 2, 3]),
        ([0, 1, 2, 9], [0, 1, 2, 3]),
        ([0, 1, 2, 1], [0, 1, 2, 3]),
        ([0, 1, 7, 2, 3], [0, 1, 3, 4]),  # a record of another queue, claiming more, less, the next
        ([0, 1, 0, 2, 3], [0, 1, 3, 4]),
        ([0, 1, 2, 2, 3], [0, 1, 2, 4]),
        ([7, 0, 1, 2], [1, 2, 3]),
        ([0, 1, 2, 0, 1], [3, 4]),  # the topic was created again
        ([0, 0, 1], [1, 2]),
    ],
)
def test_claims_are_weighed_against_those_around_them(
    claims: list[int], records: list[int]
) -> None:
    assert placed(claims) == dict(enumerate(records))


def test_a_gap_stands_for_what_has_another_name() -> None:
    """If there is room for it, and two records agree on the claim after it."""
    assert placed([0, 1, 3, 4], missing=2) == {0: 0, 1: 1, 2: "gap", 3: 3, 4: 4}
    assert placed([0, 1, 3], missing=2) == {0: 0, 1: 1, 2: 3}
    assert placed([0, 1, 4, 5], missing=2) == {0: 0, 1: 1, 2: 3, 3: 4}


def test_a_gap_stands_for_what_is_damaged() -> None:
    assert placed([0, 1, 3], damage=((200, 300),), missing=2) == {0: 0, 1: 1, 2: "gap", 3: 3}
    assert placed([1, 2], damage=((0, 100),), missing=0) == {0: "gap", 1: 1, 2: 2}


def test_of_two_that_claim_one_place_the_unit_that_stood_there_decides() -> None:
    assert placed([0, 1, 2, 2, 3], {2: 200}) == {0: 0, 1: 1, 2: 2, 3: 4}
    assert placed([0, 1, 2, 2, 3], {2: 300}) == {0: 0, 1: 1, 2: 3, 3: 4}


def test_a_topic_that_was_created_again_begins_with_one_record_whose_unit_stood_there() -> None:
    assert placed([0, 1, 2, 0], {0: 300}) == {0: 3}
    assert placed([0, 1, 2, 0]) == {0: 0, 1: 1, 2: 2, 3: 3}


def test_damaged_records_at_the_end_keep_the_places_that_were_durable() -> None:
    held, damage = {2: 200, 3: 300, 4: 400}, ((200, 500),)
    assert placed([0, 1], held, damage) == {0: 0, 1: 1, 2: "gap", 3: "gap", 4: "gap"}
    assert placed([0, 1], held, damage, sure_offset=400) == {0: 0, 1: 1, 2: "gap", 3: "gap"}
    assert placed([0, 1], held, damage, sure_offset=200) == {0: 0, 1: 1}
    assert placed([0, 1], held) == {0: 0, 1: 1}


CLAIMS = st.lists(st.integers(-1, 12), min_size=1, max_size=14)


@given(
    CLAIMS,
    st.dictionaries(st.integers(0, 12), st.integers(0, 13).map(SIZE.__mul__), max_size=6),
    st.sets(st.integers(1, 13)),
    st.sampled_from([None, 0, 2]),
)
def test_how_the_log_is_cut_into_runs_decides_nothing(
    claims: list[int], held: dict[int, int], cuts: set[int], next_offset: int | None
) -> None:
    whole = placed(claims, held, next_offset=next_offset)
    assert placed(claims, held, cuts=frozenset(cuts), next_offset=next_offset) == whole
    numbers = [each for each in whole.values() if each != "gap"]
    assert len(numbers) == len(set(numbers))


def test_a_topic_that_was_made_again_in_damage_lost_its_first_records() -> None:
    assert placed([0, 1, 2, 1, 2], damage=((300, 400),), missing=3) == {0: "gap", 1: 4, 2: 5}


def test_damaged_ranges_that_touch_are_one() -> None:
    ranges = [(0, 10), (10, 30), (40, 50), (45, 60)]
    joined = joined_damage([DamagedRange(begin, end, "") for begin, end in ranges])
    assert [(each.begin_offset, each.end_offset) for each in joined] == [(0, 30), (40, 60)]
