"""Long polls of many clients of one kind: a few wait at the reader, the others here.

While some of them wait at the reader there is nothing for the others either. When one has its answer, the one
that has waited longest takes its place, so that the members of a group share what comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, TypeVar

PLACES: Final = 16  # of one kind at the reader
_T = TypeVar("_T")


class _PollLine:
    def __init__(self) -> None:
        self.places = asyncio.Semaphore(PLACES)
        self.polls = 0  # that ask or wait for a place


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
        line.polls += 1
        try:
            async with asyncio.timeout_at(until) as waiting:
                async with line.places:
                    waiting.reschedule(None)
                    return await ask()
        except TimeoutError:
            if waiting.expired():
                return None
            raise
        finally:
            line.polls -= 1
            if not line.polls:
                del self._lines[kind]
