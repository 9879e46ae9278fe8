"""Reads that see what was acknowledged before they began, whichever process stored it.

In async mode an acknowledgement follows the append at once, and the record becomes visible a moment
later, when dispatch has put it into its queue; the index follows after that. A read which finds the
end of what is visible therefore asks the checkpoint page whether more had been appended when it
came in, and waits for that much, never longer than `SECONDS_MAX` or the caller's deadline. It waits
for nothing while nothing is pending, and never for a process that does not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from services.arrivals import Arrivals
from services.rpc.servicer import Context
from storage.files.directory_lock import LockRole
from storage.reader import StoreReader

SECONDS_MAX: Final = 3.0
DEADLINE_MARGIN_SECONDS: Final = 0.05  # of a caller's deadline, kept for the answer's way back
_ASK_SECONDS: Final = 0.02  # after which an indexer that has missed it is asked again
_LOOK_SECONDS: Final = 0.1  # the process that is waited for may have died
_INDEX_LAG_BYTES_MAX: Final = 64 << 20  # an indexer that lags more is not waited for


class CatchUp:
    """All methods run on the event loop."""

    def __init__(
        self,
        reader: StoreReader,
        arrivals: Arrivals,
        index_arrivals: Arrivals,
        draining: asyncio.Event,
    ) -> None:
        self._reader = reader
        self._arrivals = arrivals
        self._index_arrivals = index_arrivals
        self._draining = draining

    def pending(self) -> int:
        """Return the end of what was appended if it is to become visible soon, else 0."""
        end = self._appended_offset()
        return end if end > self._reader.visible_offset and self.writer_is_alive() else 0

    def writer_is_alive(self) -> bool:
        """Whether a writer has the store."""
        return self._is_held(LockRole.WRITER)

    async def visible(self, end_commit_offset: int, context: Context) -> None:
        """Return when everything before the offset is visible, or waiting for it is of no use."""
        await self._visible(end_commit_offset, wait_until(context, SECONDS_MAX))

    async def everything_visible(self, context: Context) -> None:
        """Return when everything appended by now is visible, or waiting for it is of no use."""
        if pending := self.pending():
            await self.visible(pending, context)

    async def everything_found_by_key(self, context: Context) -> None:
        """Return when everything appended by now is indexed and visible, or waiting is of no use.

        The index does not wait for dispatch, and what it names too early is in no answer.
        """
        reader = self._reader
        to_see, to_index = self.pending(), self._pending_index_offset()
        until = wait_until(context, SECONDS_MAX)
        if to_see:
            await self._visible(to_see, until)
        if to_index:

            def is_indexed() -> bool:
                if reader.indexed_offset >= to_index or not self._pending_index_offset():
                    return True
                if (positions := reader.positions) is not None:
                    positions.indexer_wake.knock()  # it may miss that
                return False

            await self._wait(is_indexed, self._index_arrivals, until, look_s=_ASK_SECONDS)

    async def _visible(self, end_commit_offset: int, until: float) -> None:
        await self._wait(
            lambda: self._reader.visible_offset >= end_commit_offset or not self.pending(),
            self._arrivals,
            until,
        )

    def _appended_offset(self) -> int:
        """Return the end of what a running writer of ours has appended, 0 without one."""
        positions = self._reader.positions
        if positions is None or not positions.writer_is_current:
            return 0
        return positions.appended_offset if positions.writer_is_writable else 0

    def _pending_index_offset(self) -> int:
        """Return the end of what was appended if it is to be indexed soon, else 0."""
        end, indexed_offset = self._appended_offset(), self._reader.indexed_offset
        if not indexed_offset < end <= indexed_offset + _INDEX_LAG_BYTES_MAX:
            return 0
        # Its lock and not its word in the page: it has said nothing yet while it only starts.
        return end if self.writer_is_alive() and self._is_held(LockRole.INDEXER) else 0

    def _is_held(self, role: LockRole) -> bool:
        try:
            return self._reader.is_held(role)
        except OSError:
            return False

    async def _wait(
        self,
        done: Callable[[], bool],
        arrivals: Arrivals,
        until: float,
        *,
        look_s: float = _LOOK_SECONDS,
    ) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            moment = arrivals.moment
            left = until - clock()
            if done() or left <= 0 or self._draining.is_set():
                return
            await arrivals.wait_for_key(None, moment, min(left, look_s))


def wait_until(context: Context, seconds: float) -> float:
    """Return until when a call may wait that long at most, by the loop's clock: its caller may give up before."""
    now = asyncio.get_running_loop().time()
    remaining = context.time_remaining()
    until = now + seconds
    return until if remaining is None else min(until, now + remaining - DEADLINE_MARGIN_SECONDS)
