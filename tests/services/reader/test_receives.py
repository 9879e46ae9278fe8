"""Where a receive is answered, and how often the leases are asked: once a message, whoever waits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from services.reader.receives import LineKey, Receives
from storage.leases.values import ReceivedBatch, ReceiveQuestion
from storage.view.filters.sql_filter import sql_filter


class FakeCalls:
    """Notes how each call was made."""

    is_free = True

    def __init__(self) -> None:
        self.made: list[str] = []

    def make(self, function: Any, *arguments: Any) -> Any:
        self.made.append("at once")
        return function(*arguments)

    def submit(self, function: Any, *arguments: Any) -> asyncio.Future[Any]:
        self.made.append("in the thread")
        future = asyncio.get_running_loop().create_future()
        future.set_result(function(*arguments))
        return future


KEY = LineKey("group", "topic")
QUESTION = ReceiveQuestion(tag_expression="*", max_messages=2)


class CountedLeases:
    """Leases of ``message_count`` messages, all of which anybody may have; counts how often it is asked."""

    def __init__(self) -> None:
        self.message_count = self.asked_count = 0
        self.has_order = False

    def is_orderly(self, _group: str) -> bool:
        return self.has_order

    def lease(self, _group: str, _topic: str, question: ReceiveQuestion) -> ReceivedBatch:
        self.asked_count += 1
        count = min(self.message_count, question.max_messages)
        self.message_count -= count
        return ReceivedBatch(
            record_count=count, attempts=np.ones(count, np.int32), lease_end_ms=1,
            has_more=count == question.max_messages,
        )  # fmt: skip

    begin_leasing = lease

    def due_in_seconds(self, *_: Any) -> float | None:
        return None


class SilentArrivals:
    """Nothing is ever announced."""

    moment = None

    async def wait_for_key(self, *_: Any) -> None:
        await asyncio.Event().wait()


class Line:
    """Receives of one group and topic, and those that wait."""

    def __init__(self) -> None:
        self.leases, self.calls = CountedLeases(), FakeCalls()
        fakes: list[Any] = [self.leases, self.calls, SilentArrivals(), print]
        self.receives = Receives(*fakes)
        self.waiting: list[asyncio.Task[ReceivedBatch | None]] = []

    async def join(self, moment: int = 0, attempt_id: str = "") -> None:
        question = replace(QUESTION, attempt_id=attempt_id)
        wait = self.receives.wait(KEY, question, 60.0, moment)
        self.waiting.append(asyncio.create_task(wait))
        await settle()

    async def counts(self) -> list[int]:
        """How many messages those have who were answered, in the order in which they came."""
        await settle()
        found = [each.result() for each in self.waiting if each.done()]
        return [0 if each is None else each.record_count for each in found]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture(name="line")
async def _line() -> Line:
    return Line()


async def test_a_first_question_and_one_with_an_sql_filter_go_to_the_thread(line: Line) -> None:
    for predicate in (None, None, sql_filter("price > 3")):
        await line.receives.at_once(KEY, replace(QUESTION, predicate=predicate))

    assert line.calls.made == ["in the thread", "at once", "in the thread"]


async def test_one_message_is_asked_for_once_however_many_wait(line: Line) -> None:
    for _ in range(5):
        await line.join()
    line.leases.asked_count = 0
    line.leases.message_count = 1
    line.receives.wake("group", "topic")

    assert await line.counts() == [1]
    assert line.leases.asked_count == 1


async def test_what_fills_an_answer_is_followed_by_the_next_one(line: Line) -> None:
    for _ in range(5):
        await line.join()
    line.leases.message_count = 5
    line.receives.wake("group", "topic")

    assert await line.counts() == [2, 2, 1]


class FaultyLeases(CountedLeases):
    """What one member asks meets a fault of the program."""

    def lease(self, group: str, topic: str, question: ReceiveQuestion) -> ReceivedBatch:
        if question.tag_expression == "faulty":
            raise RecursionError("maximum recursion depth exceeded")
        return super().lease(group, topic, question)


async def test_a_fault_that_one_question_meets_is_told_to_who_asked_it(line: Line) -> None:
    line.leases.__class__ = FaultyLeases
    await line.join()
    faulty = line.receives.wait(KEY, replace(QUESTION, tag_expression="faulty"), 60.0)
    with pytest.raises(RecursionError):
        await faulty
    line.leases.message_count = 1
    line.receives.wake("group", "topic")

    assert await line.counts() == [1]


async def test_who_asks_what_another_one_waits_for_is_not_looked_up(line: Line) -> None:
    other = ReceiveQuestion(tag_expression="paid")
    assert not line.receives.has_nothing(KEY, QUESTION)
    await line.join()
    assert line.receives.has_nothing(KEY, QUESTION)
    assert not line.receives.has_nothing(KEY, other)
    asked_count = line.leases.asked_count
    await line.join(line.receives.moment)
    assert line.leases.asked_count == asked_count

    line.receives.wake("group", "topic")
    assert not line.receives.has_nothing(KEY, QUESTION)  # until it was asked again
    await settle()
    assert line.receives.has_nothing(KEY, QUESTION)


async def test_there_is_something_after_an_answer_that_was_filled_though_another_one_gave_up(
    line: Line,
) -> None:
    """Who has given up is in the line for a moment more, and was not asked for."""
    await line.join()
    await line.join()
    line.leases.message_count = 10

    async def ask() -> bool:
        return line.receives.has_nothing(KEY, QUESTION)

    line.receives.wake("group", "topic")
    asked_between = asyncio.create_task(
        ask()
    )  # the line is served before it, the other one gone after
    line.waiting[1].cancel()

    assert not await asked_between
    assert line.waiting[0].done() and line.leases.message_count == 8


@pytest.mark.parametrize(("has_order", "asked_count"), [(False, 1), (True, 4)])
async def test_attempts_have_questions_of_their_own_in_a_group_with_order(
    line: Line, has_order: bool, asked_count: int
) -> None:
    line.leases.has_order = has_order
    for number in range(4):
        await line.join(attempt_id=f"{number}")
    line.leases.asked_count = 0
    line.leases.message_count = 1
    line.receives.wake("group", "topic")

    assert await line.counts() == [1]
    assert line.leases.asked_count == asked_count


async def test_what_came_between_the_look_and_the_wait_is_not_missed(line: Line) -> None:
    other = line.receives.wait(KEY, ReceiveQuestion(tag_expression="paid"), 60.0)
    kept = asyncio.create_task(other)  # the line, which hears of what comes
    await settle()
    moment = line.receives.moment
    line.receives.wake("group", "topic")
    await settle()
    line.leases.message_count = 2
    await line.join(moment)

    assert await line.counts() == [2]
    kept.cancel()
