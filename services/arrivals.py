"""Waiting on the event loop for what the writer publishes: one worker asleep in a futex for all.

Nobody waiting means that the worker waits for work, not for the writer, so a busy writer costs an
idle reader nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from storage.workers import FunctionWorker

_LOOK_SECONDS: Final = 1.0  # even without a wake-up: files a broker wrote, or a replaced checkpoint


class Announcing(Protocol):
    """What announces that there may be more to read."""

    @property
    def change_word(self) -> int:
        """Differs after every change; read it before looking at what changes."""
        ...

    def wait_for_change(self, seen_word: int, timeout_s: float) -> int:
        """Sleep until the word differs from the one seen or time is up; return it."""
        ...


class Arrivals:
    """All methods run on the event loop."""

    def __init__(self, store: Announcing) -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._waiting: set[asyncio.Future[None]] = set()
        self._asleep = False
        self._closed = False
        self._seen_word: int | None = None  # to watch from
        self._worker = FunctionWorker(
            "arrivals", self._watch, has_work=lambda: self._seen_word is not None
        )
        self._worker.start()

    @property
    def word(self) -> int:
        """What to pass to ``wait``, read before looking whether there is something to read."""
        return self._store.change_word

    async def wait(self, seen_word: int, timeout_seconds: float) -> None:
        """Return after the next change, at the latest when time is up; never misses one."""
        if self._closed or self._store.change_word != seen_word or timeout_seconds <= 0:
            return
        future = self._loop.create_future()
        self._waiting.add(future)
        if not self._asleep:
            # A worker already asleep saw this word or an older one, so it wakes for this waiter.
            self._asleep = True
            self._seen_word = seen_word
            self._worker.wake()
        timer = self._loop.call_later(timeout_seconds, _finish, future)
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def wake(self) -> None:
        """Wake everybody, whatever happened."""
        self._asleep = False
        for future in self._waiting:
            _finish(future)
        self._waiting.clear()

    def close(self) -> None:
        """Wake everybody for the last time and let the worker end."""
        self._closed = True
        self.wake()
        self._worker.end()

    def _watch(self) -> None:
        seen_word, self._seen_word = self._seen_word, None
        if seen_word is None:
            return
        self._store.wait_for_change(seen_word, _LOOK_SECONDS)
        if not self._closed:
            try:
                self._loop.call_soon_threadsafe(self.wake)
            except RuntimeError:  # the loop has been closed
                self._worker.end()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
