"""What services say of a name: asked for, kept for a moment, and for longer while they are away."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from typing import Final, Generic, TypeVar

import grpc

from services.gateway.messages.statuses import refusal_of
from services.loops import shielded
from services.upstream import CalledService

T = TypeVar("T")
FRESH_SECONDS: Final = 2.0
KEPT_MAX: Final = 10_000
ANSWER_SECONDS: Final = 2.0  # a client waits for 3
_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


class AnswerCache(ABC, Generic[T]):
    """Answers by name; those asked for last stay, KEPT_MAX of them."""

    def __init__(self, service: CalledService) -> None:
        self._service = service
        self._known: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._asking: dict[str, asyncio.Task[T]] = {}
        self._loop = asyncio.get_running_loop()

    @abstractmethod
    async def _asked(self, name: str) -> T:
        """Return what the service says. Raises grpc.aio.AioRpcError."""

    def fresh(self, name: str) -> T | None:
        """Return what was asked for a moment ago, None if it has to be asked for."""
        found = self._known.get(name)
        if found is None or self._loop.time() - found[1] > FRESH_SECONDS:
            return None
        return found[0]

    async def find(self, name: str) -> T:
        """Return what the service says, or said last while it does not answer. Raises CallRefused."""
        found = self.fresh(name)
        if found is not None:
            return found
        asking = self._asking.get(name)
        if asking is None:
            asking = self._asking[name] = asyncio.create_task(self._ask(name))
            asking.add_done_callback(lambda _: self._asking.pop(name, None))
        return await shielded(asking)

    def forget(self, name: str) -> None:
        """Ask again next time."""
        self._known.pop(name, None)

    async def _ask(self, name: str) -> T:
        try:
            answer = await self._asked(name)
        except grpc.aio.AioRpcError as error:
            known = self._known.get(name)
            if known is not None and error.code() in _AWAY:
                return known[0]
            self.forget(name)
            raise refusal_of(error) from None
        self._known[name] = answer, self._loop.time()
        self._known.move_to_end(name)
        while len(self._known) > KEPT_MAX:
            self._known.popitem(last=False)
        return answer
