"""Where a receive is answered: at once, or in the thread if it may look at much."""

from __future__ import annotations

import asyncio
from typing import Any

from services.reader.receives import LineKey, Receives
from storage.leases.values import ReceiveQuestion
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


class FakeBatch:
    dead = ()


class FakeLeases:
    def begin_receiving(self, *_: Any) -> FakeBatch:
        return FakeBatch()


async def test_a_question_with_an_sql_filter_goes_to_the_thread() -> None:
    calls, others = FakeCalls(), object()
    fakes: list[Any] = [FakeLeases(), calls, others, print]
    receives = Receives(*fakes)
    key = LineKey("group", "topic")
    await receives.at_once(key, ReceiveQuestion())
    await receives.at_once(key, ReceiveQuestion(predicate=sql_filter("price > 3")))

    assert calls.made == ["at once", "in the thread"]
