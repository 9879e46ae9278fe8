"""Waiting on the event loop for what the flush thread acknowledges: one wake-up for all waiters."""

from __future__ import annotations

import asyncio
from collections import deque

from storage.errors import StoreFailed
from storage.writer import StoreWriter


class Acks:
    """Waiters in the order of their offsets, so that waking stops at the first too high.

    All methods run on the event loop. Appends are made there too, one after the other, so most come
    in that order; a stream waits for its next batch when the one before is answered, and may be late.
    """

    def __init__(self, store: StoreWriter) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._wake_scheduled = False
        store.add_ack_listener(self._on_ack)

    @property
    def waiting_count(self) -> int:
        """How many wait; from any thread."""
        return len(self._waiting)

    def has(self, end_commit_offset: int) -> bool:
        """Return whether everything before the offset may be acknowledged already."""
        return self._store.acknowledged_offset >= end_commit_offset

    async def wait(self, end_commit_offset: int) -> None:
        """Return when everything before the offset may be acknowledged; raise if it never will."""
        if self._store.acknowledged_offset >= end_commit_offset:
            return
        future = self._loop.create_future()
        waiting = self._waiting
        place = len(waiting)
        while place and waiting[place - 1][0] > end_commit_offset:
            place -= 1
        waiting.insert(place, (end_commit_offset, future))
        self.wake()
        await future

    def wake(self) -> None:
        """Wake the waiters that may go on; after a failure of the store all of them."""
        self._wake_scheduled = False
        waiting = self._waiting
        acknowledged = self._store.acknowledged_offset
        while waiting and waiting[0][0] <= acknowledged:
            future = waiting.popleft()[1]
            if not future.done():
                future.set_result(None)
        if waiting and (failure := self._store.failure()) is not None:
            for _, future in waiting:
                if not future.done():
                    # An exception of its own each: one that many raise keeps all their frames.
                    future.set_exception(StoreFailed(str(failure)))
            waiting.clear()

    def _on_ack(self, _offset: int) -> None:
        # Called by the flush thread. A stale False only costs one more wake-up; a stale True means
        # that a wake-up is still to come, and it reads the offset again.
        if self._wake_scheduled or not self._waiting:
            return
        self._wake_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self.wake)
        except RuntimeError:  # the loop has been closed
            self._waiting.clear()
