"""Calls in turn: at once while what they read is in memory, in a thread after one that met the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from services.reader import calls_in_turn
from services.reader.calls_in_turn import CallsInTurn


@pytest.fixture
def disk_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How often a page was waited for; a test raises it."""
    count = [0]
    monkeypatch.setattr(calls_in_turn, "_disk_reads", lambda: count[0])
    yield count


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
