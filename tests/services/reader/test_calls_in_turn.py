"""Calls in turn: at once while what they read is in memory, in a thread after one that met the disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from services.reader import calls_in_turn
from services.reader.calls_in_turn import WARM_IN_A_ROW, CallsInTurn


@pytest.fixture
def disk_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often a page was waited for; a test raises it."""
    count = [0]
    monkeypatch.setattr(calls_in_turn, "_disk_reads", lambda: count[0])
    yield count


def test_a_call_that_met_the_disk_sends_the_next_ones_to_the_thread(disk_reads: list[int]) -> None:
    def where(reads: int = 0) -> bool:
        disk_reads[0] += reads
        return threading.current_thread() is threading.main_thread()

    async def run() -> list[bool]:
        calls = CallsInTurn("test")
        for _ in range(WARM_IN_A_ROW):
            await calls.run(where)
        assert await calls.run(where)
        assert await calls.run(where, 1)  # cold, and found to be so afterwards
        found = [await calls.run(where) for _ in range(WARM_IN_A_ROW)]
        found.append(await calls.run(where))
        calls.close()
        return found

    assert asyncio.run(run()) == [False] * WARM_IN_A_ROW + [True]


def test_the_first_calls_go_to_the_thread_and_those_that_fail_do_not_count(
    disk_reads: list[int],
) -> None:
    def where(*, fails: bool = False) -> bool:
        if fails:
            raise ValueError
        return threading.current_thread() is threading.main_thread()

    async def run() -> list[bool]:
        calls = CallsInTurn("test")
        for _ in range(WARM_IN_A_ROW):
            with pytest.raises(ValueError):
                await calls.run(partial(where, fails=True))
        found = [await calls.run(where) for _ in range(WARM_IN_A_ROW + 1)]
        calls.close()
        return found

    assert asyncio.run(run()) == [False] * WARM_IN_A_ROW + [True]


def test_calls_are_made_in_their_turn_and_raise_where_they_are_awaited(
    disk_reads: list[int],
) -> None:
    made: list[int] = []

    def note(number: int) -> int:
        if number == 3:
            raise ValueError("three")
        made.append(number)
        return number

    async def run() -> list[object]:
        calls = CallsInTurn("test")
        asked = [calls.submit(note, number) for number in range(6)]
        asked[4].cancel()
        found = await asyncio.gather(*asked, return_exceptions=True)
        calls.close()
        return list(found)

    found = asyncio.run(run())
    assert made == [0, 1, 2, 4, 5]
    assert [each for each in found if isinstance(each, int)] == [0, 1, 2, 5]
    assert isinstance(found[3], ValueError)
    assert isinstance(found[4], asyncio.CancelledError)
