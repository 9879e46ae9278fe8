"""Answers are shared, kept while a service is away, and asked for so rarely that services have little to do."""

from __future__ import annotations

import asyncio

from hand_clock import HandClock

from penstock import PermissionDenied, Unavailable
from services.console.answers import BUSY_SHARE, Answers
from storage.clock import SystemClock


class Service:
    """Counts how often it was asked; each call takes some time of the clock."""

    def __init__(self, clock: HandClock, takes_s: float = 0.0) -> None:
        self.clock, self.takes_s, self.count = clock, takes_s, 0
        self.error: Exception | None = None

    async def ask(self) -> int:
        await asyncio.sleep(0)
        self.clock.pass_s(self.takes_s)
        self.count += 1
        if self.error is not None:
            raise self.error
        return self.count


async def test_those_who_ask_at_once_or_soon_after_share_one_call() -> None:
    clock = HandClock(1)
    answers, service = Answers(clock), Service(clock)
    got = await asyncio.gather(*(answers.get("reader", "a", service.ask) for _ in range(10)))
    clock.pass_s(1)
    got.append(await answers.get("reader", "a", service.ask))
    assert {each.value for each in got} == {1}
    clock.pass_s(1)

    assert (await answers.get("reader", "a", service.ask)).value == 2


async def test_an_answer_stays_while_its_service_is_away_and_goes_with_the_right_to_it() -> None:
    clock = HandClock(1)
    answers, service = Answers(clock), Service(clock)
    await answers.get("reader", "a", service.ask)
    service.error = Unavailable("gone")
    clock.pass_s(5)
    away = await answers.get("reader", "a", service.ask)
    assert (away.value, away.is_away, away.answered_ms) == (1, True, 1)
    service.error = PermissionDenied("no")
    clock.pass_s(5)
    denied = await answers.get("reader", "a", service.ask)
    assert (denied.value, denied.is_away) == (None, False)
    service.error = None
    clock.pass_s(5)

    assert (await answers.get("reader", "a", service.ask)).value == 5 - 1


async def test_many_dear_answers_take_a_small_share_of_the_time_and_leave_cheap_ones_fresh() -> (
    None
):
    clock = HandClock(1)
    answers, cheap = Answers(clock), Service(clock, 0.0005)
    dear = [Service(clock, 0.1) for _ in range(30)]
    before = 0.0, 0, 0
    for end_s in (120, 1_320):  # all are asked for the first time at once
        before = clock.monotonic(), sum(each.count for each in dear), cheap.count
        while clock.monotonic() < end_s:
            clock.pass_s(1)
            await answers.get("writer", "cheap", cheap.ask)
            for number, each in enumerate(dear):
                await answers.get("reader", number, each.ask)
    busy_s = (sum(each.count for each in dear) - before[1]) * 0.1

    assert 0.5 * BUSY_SHARE < busy_s / (clock.monotonic() - before[0]) < 1.2 * BUSY_SHARE
    assert cheap.count - before[2] > 500


async def test_a_change_has_everything_asked_for_again() -> None:
    clock = HandClock(1)
    answers, service = Answers(clock), Service(clock)
    await answers.get("reader", "a", service.ask)
    answers.forget()

    assert (await answers.get("reader", "a", service.ask)).value == 2


async def test_one_call_that_was_slow_by_chance_is_soon_asked_for_again() -> None:
    clock = HandClock(1)
    answers, service = Answers(clock), Service(clock, takes_s=1.0)
    for service.takes_s in (1.0, 0.01, 1.0, 0.01):
        await answers.get("reader", "a", service.ask)
        clock.pass_s(2)

    assert service.count == 4


async def test_a_page_waits_no_longer_than_its_patience_and_has_the_answer_later() -> None:
    answers, may_answer = Answers(SystemClock()), asyncio.Event()

    async def ask() -> str:
        await may_answer.wait()
        return "all"

    early = (await answers.get("reader", "a", ask, patience_s=0.01)).value
    may_answer.set()
    later = (await answers.get("reader", "a", ask)).value

    assert (early, later) == (None, "all")
