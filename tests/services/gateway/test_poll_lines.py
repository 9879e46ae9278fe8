"""Of many polls of a kind a few ask at once; the others have their turn, or end in time."""

from __future__ import annotations

import asyncio
import random

import pytest

from services.gateway import poll_lines
from services.gateway.poll_lines import PollLines


@pytest.fixture(autouse=True)
def _three_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poll_lines, "PLACES", 3)


class Reader:
    """Answers polls when it is told to; knows how many ask at once."""

    def __init__(self) -> None:
        self.asking: list[asyncio.Future[int]] = []
        self.most = 0

    async def ask(self) -> int:
        answer = asyncio.get_running_loop().create_future()
        self.asking.append(answer)
        self.most = max(self.most, sum(not each.done() for each in self.asking))
        return await answer


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_each_poll_that_waits_gets_the_place_of_one_that_is_answered() -> None:
    lines, reader = PollLines(), Reader()
    polls = [asyncio.create_task(lines.ask("kind", soon(), reader.ask)) for _ in range(10)]
    for answered in range(10):
        while len(reader.asking) <= answered:
            await asyncio.sleep(0)
        reader.asking[answered].set_result(answered)

    assert sorted(await asyncio.gather(*polls)) == list(range(10))
    assert reader.most == 3


async def test_a_poll_without_a_place_ends_when_its_time_is_up() -> None:
    lines, reader = PollLines(), Reader()
    holders = [asyncio.create_task(lines.ask("kind", soon(), reader.ask)) for _ in range(3)]
    await asyncio.sleep(0)

    assert await lines.ask("kind", soon(0.01), reader.ask) is None
    assert len(reader.asking) == 3
    for answer in reader.asking:
        answer.set_result(1)
    assert await asyncio.gather(*holders) == [1, 1, 1]


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_whoever_goes_when(seed: int) -> None:
    """Callers that go, while they wait, ask, or are just given a place."""
    choice = random.Random(seed)
    lines, reader = PollLines(), Reader()
    polls = [asyncio.create_task(lines.ask("kind", soon(), reader.ask)) for _ in range(30)]
    while not all(poll.done() for poll in polls):
        open_calls = [answer for answer in reader.asking if not answer.done()]
        if open_calls and choice.random() < 0.5:
            choice.choice(open_calls).set_result(1)
        for poll in choice.sample(polls, 2):
            if choice.random() < 0.3:
                poll.cancel()
        if choice.random() < 0.7:
            await asyncio.sleep(0)
    await asyncio.gather(*polls, return_exceptions=True)

    assert lines._lines == {}
