"""How much memory the answers of all streams may take together.

A caller that does not read keeps the answer that is being written to it, and one that was prepared
after it. Only a bound over all of them keeps such callers from taking the whole memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from storage.errors import StoreBusy

WAIT_SECONDS: Final = 5.0
RETRY_DELAY_MS: Final = 1_000


class Budget:
    """Bytes to take and to give back; all methods run on the event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""
        return self._taken

    def try_take(self, count: int) -> bool:
        """Take bytes if they are free now; return whether they were. The only taker gets any number."""
        if self._waiting or not self._fits(count):
            return False
        self._taken += count
        return True

    async def take(self, count: int) -> None:
        """Take bytes, in turn. Raises StoreBusy when none become free in time."""
        if self.try_take(count):
            return
        turn = asyncio.get_running_loop().create_future()
        entry = (count, turn)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(asyncio.shield(turn), WAIT_SECONDS)
        except BaseException as error:
            if turn.done():  # it came in the same moment
                self.give(count)
            else:
                self._waiting.remove(entry)
                self._let_in()
            if isinstance(error, TimeoutError):
                raise StoreBusy(
                    "streams whose callers do not read take all the memory there is for them",
                    retry_delay_ms=RETRY_DELAY_MS,
                ) from None
            raise

    def give(self, count: int) -> None:
        """Give bytes back; a negative number takes more than was known to be needed."""
        self._taken -= count
        self._let_in()

    def _fits(self, count: int) -> bool:
        return not self._taken or self._taken + count <= self._bytes_max

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            count, turn = self._waiting.popleft()
            self._taken += count
            turn.set_result(None)
