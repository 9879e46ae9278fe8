"""Unique keys that a store makes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime

from storage.clock import SystemClock
from storage.log.unique_keys import UniqueKeys

FEBRUARY_MS = int(datetime(2026, 2, 1, tzinfo=UTC).timestamp()) * 1000
MONTH_PART = slice(-12, -4)


class SetClock(SystemClock):
    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms

    def now_ms(self) -> int:
        return self.at_ms


def test_the_moment_begins_again_with_each_month() -> None:
    clock = SetClock(FEBRUARY_MS - 1)
    keys = UniqueKeys("127.0.0.1:0", clock)
    assert int(keys.make()[MONTH_PART], 16) == 31 * 86_400_000 - 1
    clock.at_ms += 1
    assert int(keys.make()[MONTH_PART], 16) == 0


def test_a_key_of_the_last_moment_is_whole_though_another_thread_is_in_the_next_month() -> None:
    clock = SetClock(FEBRUARY_MS - 1)
    keys = UniqueKeys("127.0.0.1:0", clock)

    def counter_behind_another_call() -> Iterator[int]:
        keys._counter = itertools.count(7)
        clock.at_ms = FEBRUARY_MS
        keys.make()
        yield 9

    keys._counter = counter_behind_another_call()
    key = keys.make()
    assert int(key[MONTH_PART], 16) == 31 * 86_400_000 - 1
    assert len(key) == 32
