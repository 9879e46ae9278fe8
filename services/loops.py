"""The event loop that services run on, and tasks on it that may outlive whoever awaits them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a new event loop: libuv's, or Python's own on a platform that lacks it."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Retrieve how a task ended, for ``add_done_callback``: asyncio logs errors that nobody retrieves."""
    if not ended.cancelled():
        ended.exception()


async def shielded(task: asyncio.Future[T]) -> T:
    """Wait for a task that goes on when its caller is cancelled. Raises what it raises."""
    task.add_done_callback(retrieve)
    return await asyncio.shield(task)
