"""A call with streams whose caller has limits: its frames go no faster than they allow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from services.limits.meter import Meter
from services.rpc.servicer import Context

T = TypeVar("T")
_LOOK_S: Final = 0.5  # a limit that is raised ends longer waits by then


class MeteredCall:
    """What ``Context`` is, of another one: what it does not say itself is the other one's."""

    def __init__(self, call: Context, meter: Meter) -> None:
        self._call = call
        self._meter = meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def read_each(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        """Give each message to ``take``; the next one comes once the caller may send it. Raises CallEnded."""

        def take_counted(data: bytes) -> Awaitable[None] | None:
            self._meter.take_frame(len(data))
            wanted = take(data)
            return self._wait(wanted) if wanted or self._meter.wait_s() else None

        await self._in_turn(lambda: self._call.read_each(take_counted))

    async def _wait(self, wanted: Awaitable[None] | None) -> None:
        if wanted is not None:
            await wanted
        await self._turn()

    async def write(self, answer: bytes) -> None:
        """Write one answer, once the caller may have it. Raises CallEnded."""
        self._meter.hold(len(answer))
        try:
            await self._in_turn(lambda: self._call.write(answer))
        finally:
            self._meter.hold(-len(answer))
        self._meter.take_answer(len(answer))

    async def write_all(self, answers: Iterable[bytes]) -> None:
        """Write answers without a wait between them. Raises CallEnded."""
        await self._in_turn(lambda: self._call.write_all(self._taken(answers)))

    async def _in_turn(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something when the caller has its turn."""
        await self._turn()
        return await do()

    async def _turn(self) -> None:
        while wait_s := self._meter.wait_s():
            await asyncio.sleep(min(wait_s, _LOOK_S))

    def _taken(self, answers: Iterable[bytes]) -> Iterator[bytes]:
        for answer in answers:
            self._meter.take_answer(len(answer))
            yield answer
