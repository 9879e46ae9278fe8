"""Long polls of many clients of one kind: a few wait at the reader, the others here.

While some of them wait at the reader there is nothing for the others either. When one has its answer,
another one, whichever, takes its place, so that the members of a group share what comes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, TypeVar

PLACES: Final = 16  # of one kind at the reader
_T = TypeVar("_T")


@dataclass(slots=True)
class _PollLine:
    asking: int = 0
    parked: list[asyncio.Future[bool]] = field(default_factory=list)


class PollLines:
    """Lets so many polls of a kind ask at once; used on the event loop."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, _PollLine] = {}
        self._loop = asyncio.get_running_loop()

    async def ask(
        self, kind: Hashable, until: float, ask: Callable[[], Awaitable[_T]]
    ) -> _T | None:
        """Return what ``ask`` returns, once there is a place; None if there is none until then.

        ``until`` is of the loop's clock; what is left of the time is for ``ask`` to look after. Who has no time
        to wait asks at once, beside the line: there may be much for those in it.
        """
        if until <= self._loop.time():
            return await ask()
        line = self._lines.setdefault(kind, _PollLine())
        if line.asking < PLACES:
            line.asking += 1
        elif not await self._given_place(kind, line, until):
            return None
        try:
            return await ask()
        finally:
            self._leave(kind, line)

    async def _given_place(self, kind: Hashable, line: _PollLine, until: float) -> bool:
        """Wait for the place of another one; False if time is up."""
        place: asyncio.Future[bool] = self._loop.create_future()
        line.parked.append(place)
        timer = self._loop.call_at(until, _end, place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.result():
                self._leave(kind, line)
            raise
        finally:
            timer.cancel()
            if place in line.parked:
                line.parked.remove(place)

    def _leave(self, kind: Hashable, line: _PollLine) -> None:
        """Give a place to one that waits, whichever."""
        while line.parked:
            at = random.randrange(len(line.parked))  # noqa: S311  nothing to be guessed
            line.parked[at], line.parked[-1] = line.parked[-1], line.parked[at]
            place = line.parked.pop()
            if not place.done():
                place.set_result(True)
                return
        line.asking -= 1
        if not line.asking:
            del self._lines[kind]


def _end(place: asyncio.Future[bool]) -> None:
    if not place.done():
        place.set_result(False)
