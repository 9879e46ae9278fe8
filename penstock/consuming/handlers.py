"""A bounded number of handlers at once: threads of a pool, or tasks of an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Any, Self

from penstock.forms import finished


class Handlers:
    """Up to ``concurrency`` calls in threads; leaving the block waits for all."""

    def __init__(self, concurrency: int) -> None:
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="penstock-handler")
        self._room = BoundedSemaphore(concurrency)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._pool.shutdown()

    async def start(self, handle: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Call it in a thread, once there is room. It must not raise."""
        self._room.acquire()
        self._pool.submit(finished, handle, *given).add_done_callback(
            lambda _: self._room.release()
        )


class AsyncHandlers:
    """Up to ``concurrency`` calls in tasks; leaving the block waits for all.

    Where it is left by an exception, what still runs is cancelled.
    """

    def __init__(self, concurrency: int) -> None:
        self._room = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            for task in self._running:
                task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def start(self, handle: Callable[..., Coroutine[Any, Any, None]], *given: Any) -> None:
        """Call it in a task, once there is room. It must not raise."""
        await self._room.acquire()
        task = asyncio.create_task(handle(*given))
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._room.release()
