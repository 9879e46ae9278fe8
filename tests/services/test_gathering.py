"""Calls that gather: those of one moment are one call, and whatever ends it, its callers hear and the next is made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from services.loops import Gathering


class Calls:
    """Answers each item with ten times as much, negative ones with an error; ``problems`` come first."""

    def __init__(self, *problems: BaseException, most: int | None = None) -> None:
        self.made: list[list[int]] = []
        self.problems = list(problems)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.gathering: Gathering[int, int] = Gathering(self._make, most=most)

    async def _make(self, _key: object, items: list[int]) -> Sequence[int | Exception]:
        self.made.append(items)
        await self.may_answer.wait()
        if self.problems:
            raise self.problems.pop(0)
        return [ValueError(item) if item < 0 else item * 10 for item in items]

    def ask(self, *items: int) -> list[asyncio.Task[int]]:
        return [asyncio.create_task(self.gathering.outcome(item)) for item in items]


async def test_those_of_one_moment_are_one_call_and_those_that_come_meanwhile_the_next() -> None:
    calls = Calls(most=3)
    calls.may_answer.clear()
    first = calls.ask(1, 2)
    while not calls.made:
        await asyncio.sleep(0)
    later = calls.ask(3, -1, 5, 6)
    await asyncio.sleep(0)
    calls.may_answer.set()
    answers = await asyncio.gather(*first, *later, return_exceptions=True)

    assert calls.made == [[1, 2], [3, -1, 5], [6]]
    assert [each for each in answers if isinstance(each, int)] == [10, 20, 30, 50, 60]
    assert isinstance(answers[3], ValueError)
    assert calls.gathering.key_count == 0


async def test_calls_of_two_keys_go_on_beside_each_other() -> None:
    calls = Calls()
    calls.may_answer.clear()
    asked = [asyncio.create_task(calls.gathering.outcome(1, key)) for key in ("a", "b", "a")]
    while len(calls.made) < 2:
        await asyncio.sleep(0)
    assert calls.gathering.key_count == 2
    calls.may_answer.set()
    assert await asyncio.gather(*asked) == [10, 10, 10]
    assert calls.made == [[1, 1], [1]]


@pytest.mark.parametrize("problem", [RuntimeError("closed"), asyncio.CancelledError()])
async def test_what_ends_a_call_is_told_to_all_of_it_and_the_next_one_is_made(
    problem: BaseException,
) -> None:
    calls = Calls(problem)
    async with asyncio.timeout(60):
        refused = await asyncio.gather(*calls.ask(1, 2), return_exceptions=True)
        again = await calls.gathering.outcome(3)

    assert [type(each) for each in refused] == [RuntimeError] * 2
    assert again == 30


async def test_a_caller_who_goes_keeps_nobody_waiting() -> None:
    calls = Calls()
    calls.may_answer.clear()
    gone, staying = calls.ask(1, 2)
    while not calls.made:
        await asyncio.sleep(0)
    gone.cancel()
    calls.may_answer.set()

    assert await staying == 20
