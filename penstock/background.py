"""Work beside the caller's: a thread, or a task of an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from penstock.forms import finished


class WakeUp:
    """Wakes one thread that waits.

    `threading.Event` is not used: an interrupt (Ctrl-C) of the thread that sets it may leave its lock held
    for ever.
    """

    def __init__(self) -> None:
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """End the wait, or the next one; any thread may say so."""
        if self._tokens.empty():
            self._tokens.put(None)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until it is set, at most so long."""
        with suppress(Empty):
            self._tokens.get(timeout_s != 0, timeout_s)  # at 0 it keeps the interpreter


class AsyncWakeUp:
    """Wakes one task that waits."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_set = False

    def set(self) -> None:
        """End the wait, or the next one; any thread may say so."""
        if not self._is_set:
            self._is_set = True
            if self._loop is not None:
                with suppress(RuntimeError):  # nobody waits in a loop that is closed
                    self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, timeout_s: float | None) -> None:
        """Wait until it is set, at most so long; the loop has a turn at least. It may end early."""
        self._loop = asyncio.get_running_loop()
        if self._is_set or self._event.is_set() or timeout_s == 0:
            await asyncio.sleep(0)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._event.wait()
        self._event.clear()
        self._is_set = False


class Background:
    """A thread that works when it is woken or its pause is over, until it is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._woken = WakeUp()
        self._threads: list[threading.Thread] = []
        self._claim = threading.Lock()  # taken by the one thread that works
        self.has_begun = False
        self.is_stopping = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start it, unless it was started.

        After an interrupt (Ctrl-C) it is not known whether the thread will begin: the next call starts another,
        and the first of the two that begins does the work.
        """
        if not self.has_begun:
            thread = threading.Thread(
                target=self._work_once, args=(work,), name=self._name, daemon=True
            )
            self._threads.append(thread)
            thread.start()
            self.has_begun = True

    def _work_once(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._claim.acquire(blocking=False):
            self.has_begun = True
            finished(work)

    def wake(self) -> None:
        """End its pause, or the next one; any thread may say so."""
        self._woken.set()

    async def pause(self, timeout_s: float) -> None:
        """Wait until it is woken, at most so long; the work calls it."""
        await self._woken.wait(timeout_s)

    def stop(self) -> None:
        """Have it end soon."""
        self.is_stopping = True
        self._woken.set()

    async def join(self) -> None:
        """Wait until it has ended; one that never began has."""
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join()


class AsyncBackground:
    """A task that works when it is woken or its pause is over, until it is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._woken = AsyncWakeUp()
        self._task: asyncio.Task[None] | None = None
        self.is_stopping = False

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start it, unless it runs."""
        if self._task is None:
            self._task = asyncio.create_task(work(), name=self._name)

    def wake(self) -> None:
        """End its pause, or the next one; any thread may say so."""
        self._woken.set()

    async def pause(self, timeout_s: float) -> None:
        """Wait until it is woken, at most so long; the work calls it."""
        await self._woken.wait(timeout_s)

    def stop(self) -> None:
        """Have it end soon."""
        self.is_stopping = True
        self._woken.set()

    async def join(self) -> None:
        """Wait until it has ended."""
        if self._task is not None and self._task is not asyncio.current_task():
            await self._task
