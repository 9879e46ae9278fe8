"""Waiting on the event loop for what another process publishes: one worker asleep in a futex for all.

Nobody waiting means that the worker waits for work, not for that process, so a busy writer costs an
idle reader nothing. Who waits for one key only, such as a queue, is left asleep while others change.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from storage.checkpoint.positions import CheckpointFile, Role
from storage.errors import StoreError
from storage.workers import FunctionWorker

_LOOK_SECONDS: Final = 1.0  # even without a wake-up: files a broker wrote, or a replaced checkpoint
_NO_PAGE_SECONDS: Final = 0.05
_TROUBLE_SECONDS: Final = 0.1  # of rest where what is announced cannot be read for now


class PageSteps:
    """The steps of the writer or of the indexer, by its word in the checkpoint page; ``page`` returns that.

    Where there is no page, ``look`` is called every 50 ms, and there may be more after each.
    """

    def __init__(
        self,
        page: Callable[[], CheckpointFile | None],
        role: Role,
        look: Callable[[], object] = lambda: None,
    ) -> None:
        self._page = page
        self._is_writer = role is Role.WRITER
        self._look = look

    @property
    def change_word(self) -> int:
        """Differs after every step; read it before looking at what changes."""
        page = self._page()
        if page is None:
            return 0
        return page.writer_word if self._is_writer else page.indexer_word

    def wait_for_change(self, seen_word: int, timeout_s: float) -> int:
        """Sleep until the word differs from the one seen or time is up; return it."""
        page = self._page()
        if page is not None:
            wait = page.wait_for_writer if self._is_writer else page.wait_for_indexer
            return wait(seen_word, timeout_s)
        time.sleep(_NO_PAGE_SECONDS)
        with suppress(StoreError, OSError):  # the next read meets it, too
            self._look()
        return self.change_word


class ChangedKeys(Protocol):
    """What says which keys changed. ``position`` rises with what has been looked at."""

    @property
    def position(self) -> int:
        """Up to where it has looked."""
        ...

    @property
    def end(self) -> int:
        """Up to where a look would go now."""
        ...

    def look(self) -> Collection[Hashable] | None:
        """Return the keys that changed since the last look, None if it may be any."""
        ...


class Moment(NamedTuple):
    """Where things were before one looked at them: what to wait from."""

    word: int
    end: int


class Arrivals:
    """All methods run on the event loop."""

    def __init__(self, store: PageSteps, keys: ChangedKeys | None = None) -> None:
        self._store = store
        self._keys = keys
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Hashable, set[asyncio.Future[bool]]] = {}  # None: for any change
        self._closed = False
        self._is_watched = False  # the worker sleeps in the futex, or is about to
        self._is_posted = False  # a wake-up is on its way to the loop
        self._seen_word = 0  # the worker's, while it watches
        self._worker = FunctionWorker("arrivals", self._watch, has_work=lambda: self._is_watched)
        self._worker.start()

    @property
    def moment(self) -> Moment:
        """What to pass to ``wait_for_key``, read before looking whether there is something to read."""
        word = self._store.change_word  # first: what becomes visible after it changes it again
        return Moment(word, 0 if self._keys is None else self._keys.end)

    @property
    def waiting_count(self) -> int:
        """How many wait; from any thread."""
        return sum(map(len, list(self._waiting.values())))

    async def wait_for_key(self, key: Hashable, seen: Moment, timeout_seconds: float) -> bool:
        """Return after the next change of a key, at the latest when time is up; never misses one.

        None waits for any change. True if it was that key that changed, and by little; False where it may be
        anything.
        """
        if self._closed or self._store.change_word != seen.word or timeout_seconds <= 0:
            return False
        if key is not None and (self._keys is None or self._keys.position > seen.end):
            return False  # the change that it waits for may have been looked at
        future: asyncio.Future[bool] = self._loop.create_future()
        self._waiting.setdefault(key, set()).add(future)
        if not self._is_watched:
            self._seen_word = seen.word
            self._is_watched = True
            self._worker.wake()
        timer = self._loop.call_later(timeout_seconds, _finish, future, False)
        try:
            return await future
        finally:
            timer.cancel()
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.discard(future)
                if not waiting:
                    del self._waiting[key]

    def close(self) -> None:
        """Wake everybody for the last time and let the worker end."""
        self._closed = True
        self._wake_all()
        self._worker.end()

    def _changed(self) -> None:
        """Wake those who may have waited for what the worker saw."""
        self._is_posted = False  # what changes from here on posts again
        if not self._waiting:
            self._is_watched = False
            return
        changed = None
        if self._keys is not None and self._waiting.keys() != {None}:
            with suppress(StoreError, OSError):  # the next read meets it, too
                changed = self._keys.look()
        if changed is None:
            self._wake_all()
            return
        for key in (None, *changed):
            for future in self._waiting.pop(key, ()):
                _finish(future, key is not None)

    def _wake_all(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for futures in waiting.values():
            for future in futures:
                _finish(future, False)

    def _watch(self) -> float | None:
        rest_s = 0.0
        try:
            self._seen_word = self._store.wait_for_change(self._seen_word, _LOOK_SECONDS)
        except (
            StoreError,
            OSError,
        ):  # such as no descriptor left for a table: who waits meets it, too
            rest_s = _TROUBLE_SECONDS
        if self._closed:
            return None
        if not self._is_posted:
            self._is_posted = True
            try:
                self._loop.call_soon_threadsafe(self._changed)
            except RuntimeError:  # the loop has been closed
                self._worker.end()
        return rest_s if self._is_watched else None


def _finish(future: asyncio.Future[bool], is_key: bool) -> None:
    if not future.done():
        future.set_result(is_key)
