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
from services.reader.source import Source
from services.rpc.servicer import Context

SECONDS_MAX: Final = 3.0
DEADLINE_MARGIN_SECONDS: Final = 0.05  # of a caller's deadline, kept for the answer's way back
_ASK_SECONDS: Final = 0.02  # after which an indexer that has missed it is asked again
_LOOK_SECONDS: Final = 0.1  # the process that is waited for may have died


class CatchUp:
    """All methods run on the event loop."""

    def __init__(
        self, store: Source, arrivals: Arrivals, index_arrivals: Arrivals, draining: asyncio.Event
    ) -> None:
        self._store = store
        self._arrivals = arrivals
        self._index_arrivals = index_arrivals
        self._draining = draining

    def pending(self) -> int:
        """Return what to wait for before the end of a queue is reported; 0: nothing."""
        return self._store.pending_offset()

    async def visible(self, end_commit_offset: int, context: Context) -> None:
        """Return when everything before the offset is visible, or waiting for it is of no use."""
        await self._visible(end_commit_offset, _deadline(context))

    async def everything_visible(self, context: Context) -> None:
        """Return when everything appended by now is visible, or waiting for it is of no use."""
        if pending := self._store.pending_offset():
            await self.visible(pending, context)

    async def everything_found_by_key(self, context: Context) -> None:
        """Return when everything appended by now is indexed and visible, or waiting is of no use.

        The index does not wait for dispatch, and what it names too early is in no answer.
        """
        store = self._store
        to_see, to_index = store.pending_offset(), store.pending_index_offset()
        until = _deadline(context)
        if to_see:
            await self._visible(to_see, until)
        if to_index:

            def is_indexed() -> bool:
                if store.indexed_offset >= to_index or not store.pending_index_offset():
                    return True
                store.ask_for_index()
                return False

            await self._wait(is_indexed, self._index_arrivals, until, look_s=_ASK_SECONDS)

    async def _visible(self, end_commit_offset: int, until: float) -> None:
        store = self._store
        await self._wait(
            lambda: store.visible_offset >= end_commit_offset or not store.pending_offset(),
            self._arrivals,
            until,
        )

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
            word = arrivals.word
            left = until - clock()
            if done() or left <= 0 or self._draining.is_set():
                return
            await arrivals.wait(word, min(left, look_s))


def _deadline(context: Context) -> float:
    """Return until when a call may wait, by the loop's clock."""
    now = asyncio.get_running_loop().time()
    remaining = context.time_remaining()
    until = now + SECONDS_MAX
    return until if remaining is None else min(until, now + remaining - DEADLINE_MARGIN_SECONDS)
