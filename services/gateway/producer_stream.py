"""The stream of one client, and what waits to be told on it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from services.accounts.principal import PRINCIPAL
from services.rpc.servicer import CallEnded, Context
from services.rpc.status import Unauthenticated
from storage.accounts.rules import Action, Resource

STUCK_SECONDS: Final = 5.0
WAITING_BYTES_MAX: Final = 1 << 20  # of one stream, beyond its first command


class ProducerStream:
    """The stream of a producer that is connected, and the topics that it has named.

    Commands wait for the ones before them, and no caller waits for any. A stream that has taken nothing
    for STUCK_SECONDS is stuck: it is told nothing more until it has taken what is under way. gRPC cannot
    end it before that.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.principal = PRINCIPAL.get()
        self.topics: frozenset[str] = frozenset()
        self.watched: frozenset[str] = frozenset()  # those topics, while it is not stuck
        self.is_stuck = False
        self.stuck_changed: Callable[[], None] = _nothing
        self.is_closed = False
        self._waiting: deque[tuple[bytes, Callable[[], None]]] = deque()
        self._waiting_bytes = 0
        self._telling: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()  # gRPC takes one write at a time

    @property
    def user(self) -> str:
        """Whose it is, empty where accounts are off."""
        return "" if self.principal is None else self.principal.name

    def may_send_to(self, topic: str) -> bool:
        """Whether its user may send to a topic, by the rules as they are now."""
        if self.principal is None:
            return True
        try:
            self.principal.user()
        except Unauthenticated:
            return False
        return self.principal.allows(Action.PUB, Resource.topic(topic))

    async def write(self, command: bytes) -> None:
        """Write one command; return when the connection has taken it."""
        async with self._writing:
            await self.context.write(command)

    def tell(self, command: bytes, untold: Callable[[], None]) -> bool:
        """Have a command written after those before it; False if the stream takes no more now.

        ``untold`` is called if it turns out later that the command is not taken.
        """
        if self.is_closed or self.is_stuck:
            return False
        if self._waiting and self._waiting_bytes + len(command) > WAITING_BYTES_MAX:
            return False
        self._waiting.append((command, untold))
        self._waiting_bytes += len(command)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_all())
        return True

    def close(self) -> None:
        """Tell nothing more; what waits is untold."""
        self.is_closed = True
        self._give_back()

    async def _tell_all(self) -> None:
        try:
            while self._waiting:
                await self._tell(self._waiting[0][0])
                if self._waiting:
                    self._waiting_bytes -= len(self._waiting.popleft()[0])
        except CallEnded:
            self.close()
        finally:
            self._telling = None

    async def _tell(self, command: bytes) -> None:
        writing = asyncio.ensure_future(self.write(command))
        done, _ = await asyncio.wait((writing,), timeout=STUCK_SECONDS)
        if not done:
            self._set_stuck(stuck=True)
            self._give_back()
        await writing
        if not done:
            self._set_stuck(stuck=False)

    def _set_stuck(self, *, stuck: bool) -> None:
        self.is_stuck = stuck
        self.stuck_changed()

    def _give_back(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for _, untold in waiting:
            untold()


def _nothing() -> None:
    pass
