"""Tasks that may outlive whoever awaits them: asyncio logs a traceback of an error that nobody retrieves."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

_T = TypeVar("_T")


def retrieve(ended: asyncio.Future[Any]) -> None:
    """Retrieve how a task ended; for ``add_done_callback``."""
    if not ended.cancelled():
        ended.exception()


async def shielded(task: asyncio.Future[_T]) -> _T:
    """Wait for a task that goes on when its caller is cancelled. Raises what it raises."""
    task.add_done_callback(retrieve)
    return await asyncio.shield(task)
