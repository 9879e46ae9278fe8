"""How much memory the answers of all streams may take together.

A caller that does not read keeps the answer that is being written to it, and one that was prepared
after it. Only a bound over all of them keeps such callers from taking the whole memory.
"""

from __future__ import annotations

import asyncio
from typing import Final

from storage.errors import StoreBusy

WAIT_SECONDS: Final = 5.0
RETRY_DELAY_MS: Final = 1_000


class Budget:
    """Bytes to take and to give back; all methods run on the event loop."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._taken = 0
        self._turn = asyncio.Lock()  # of the first one who waits
        self._given = asyncio.Event()  # set, and another one made, with all that is given back

    @property
    def taken(self) -> int:
        """Bytes that are taken now."""
        return self._taken

    def try_take(self, count: int) -> bool:
        """Take bytes if they are free now; return whether they were. The only taker gets any number."""
        if self._turn.locked() or not self._fits(count):
            return False
        self._taken += count
        return True

    async def take(self, count: int) -> None:
        """Take bytes, in turn. Raises StoreBusy when none become free in time."""
        if self.try_take(count):
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS), self._turn:
                while not self._fits(count):
                    await self._given.wait()
                self._taken += count
        except TimeoutError:
            raise StoreBusy(
                "streams whose callers do not read take all the memory there is for them",
                retry_delay_ms=RETRY_DELAY_MS,
            ) from None

    def give(self, count: int) -> None:
        """Give bytes back; a negative number takes more than was known to be needed."""
        self._taken -= count
        self._given.set()
        self._given = asyncio.Event()

    def _fits(self, count: int) -> bool:
        return not self._taken or self._taken + count <= self._bytes_max
