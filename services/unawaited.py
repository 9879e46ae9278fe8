"""Tasks that may end when nobody awaits them any more.

Somebody takes note of how they ended, or asyncio logs a traceback.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

_T = TypeVar("_T")


def look_at(ended: asyncio.Future[Any]) -> None:
    """Take note of how a task ended; its callback."""
    if not ended.cancelled():
        ended.exception()


async def outliving(task: asyncio.Future[_T]) -> _T:
    """Wait for a task that goes on when its caller is cancelled. Raises what it raises."""
    task.add_done_callback(look_at)
    return await asyncio.shield(task)
