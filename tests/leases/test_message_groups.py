"""Message groups of an orderly queue's rows: the hash table and chains beside a list that is searched."""

from __future__ import annotations

import random

import numpy as np
import pytest

from storage.kernels.leases import columns
from storage.kernels.leases import records as record_kernels
from storage.kernels.leases import rows as kernels
from storage.leases.leased_queue import Events
from storage.leases.rows import LeaseRows

NO_OWNER = -1


class Rows:
    """A queue's rows, and a model: message groups of live queue offsets, those handed out first."""

    def __init__(self) -> None:
        self.rows = LeaseRows(is_orderly=True)
        self.groups: dict[int, int] = {}
        self.free: set[int] = set()
        self.next_offset = 0

    def add(self, groups: list[int]) -> None:
        count = len(groups)
        records = np.zeros((count, record_kernels.RECORD_COLUMNS), np.int64)
        records[:, columns.RECORD_OFFSET] = np.arange(count) + self.next_offset
        records[:, columns.RECORD_GROUP] = groups
        records[:, columns.IS_CHOSEN] = 1
        self.rows.make_room(count)
        events = Events(count)
        kernels.add_rows(
            self.rows.rows, self.rows.minima, self.rows.bounds, records, count, 1, 1_000, NO_OWNER,
            16, 0, events.table, 0,
        )  # fmt: skip
        for group, is_chosen in zip(groups, records[:, columns.IS_CHOSEN].tolist(), strict=True):
            assert is_chosen == (group not in self.groups.values())
            if is_chosen:
                self.free.add(self.next_offset)
            self.groups[self.next_offset] = group
            self.next_offset += 1

    def end(self, offsets: list[int]) -> None:
        """Acknowledge messages that were handed out."""
        indexes = self.rows.find(np.array(offsets, np.int64))
        assert (indexes >= 0).all()
        events = Events(len(offsets))
        kernels.change_rows(
            self.rows.rows, self.rows.minima, self.rows.bounds, indexes, columns.GONE, 2, 0,
            events.table, 0,
        )  # fmt: skip
        for offset in offsets:
            group = self.groups.pop(offset)
            self.free.discard(offset)
            following = [each for each, its in self.groups.items() if its == group]
            if following:
                self.free.add(min(following))

    def check(self) -> None:
        live = self.rows.live
        states = (live[:, columns.STATE] >> columns.STATE_BITS) & 0xFF
        is_free = (states != columns.GONE) & (states != columns.BLOCKED)
        assert set(live[is_free, columns.OFFSET].tolist()) == self.free
        assert self.rows.blocked_count == len(self.groups) - len(self.free)
        assert self.rows.live_count == len(self.groups)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_of_each_message_group_is_free_and_no_other(seed: int) -> None:
    """Whatever is added and ended in whatever order, with groups whose slots collide, in tables that move."""
    rng = random.Random(seed)
    groups = [each | 1 for each in rng.sample(range(1 << 62), 40)]
    groups += [groups[0] + 128 * n for n in range(1, 40)] + [0, -1, -(1 << 63)]
    rows = Rows()
    for _ in range(150):
        if rng.random() < 0.5:
            rows.add([rng.choice(groups) for _ in range(rng.choice([1, 3, 40]))])
        elif rows.free:
            free = sorted(rows.free)
            rows.end(rng.sample(free, rng.randint(1, len(free))))
        if rng.random() < 0.1:
            while rows.free:  # until the table is empty
                rows.end(sorted(rows.free))
        rows.check()


def test_rows_that_are_taken_away_at_the_end_leave_the_others_linked() -> None:
    rows = Rows()
    rows.add([5, 7, 5, 7, 5])
    before = rows.rows.find(np.array([2], np.int64))[0]
    rows.rows.bounds[columns.TAIL] = before  # offsets 2 to 4 are no more
    rows.rows.bounds[columns.LIVE] = 2
    rows.rows.bounds[columns.BLOCKED_COUNT] = 0
    rows.rows.link_groups()
    rows.next_offset = 2
    rows.groups = {0: 5, 1: 7}
    rows.free = {0, 1}

    rows.add([7, 5, 9])
    rows.check()
    rows.end([0, 1])
    rows.check()
    assert rows.free == {2, 3, 4}
