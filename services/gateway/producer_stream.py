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

WAITING_BYTES_MAX: Final = 1 << 20  # of one stream, beyond its first command


class ProducerStream:
    """The stream of a producer that is connected, and the topics that it has named.

    Commands wait for the ones before them, and no caller waits for any.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.principal = PRINCIPAL.get()
        self.topics: frozenset[str] = frozenset()
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
        if self.is_closed or (
            self._waiting and self._waiting_bytes + len(command) > WAITING_BYTES_MAX
        ):
            return False
        self._waiting.append((command, untold))
        self._waiting_bytes += len(command)
        if self._telling is None:
            self._telling = asyncio.create_task(self._tell_all())
        return True

    def close(self) -> None:
        """Tell nothing more; what waits is untold."""
        self.is_closed = True
        waiting, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        for _, untold in waiting:
            untold()

    async def _tell_all(self) -> None:
        try:
            while self._waiting:
                await self.write(self._waiting[0][0])
                if self._waiting:
                    self._waiting_bytes -= len(self._waiting.popleft()[0])
        except CallEnded:
            self.close()
        finally:
            self._telling = None
