"""A coroutine whose first step is made at once, and whose end is waited for later.

An operation of gRPC starts in the first step of the coroutine that stands for it. Begun like this it
goes on beside what its owner does meanwhile, at the cost of no task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Begun(Generic[T]):
    """A coroutine that waits for one future, under way. Await it once, or cancel it.

    Raises at once what its first step raises.
    """

    def __init__(self, coroutine: Coroutine[Any, None, T]) -> None:
        self._coroutine = coroutine
        self._future: asyncio.Future[Any] = coroutine.send(None)

    def __await__(self) -> Generator[Any, None, T]:
        coroutine = self._coroutine
        if not self._future.done():
            try:
                yield self._future
            except BaseException as error:
                coroutine.throw(error)
                raise
        try:
            coroutine.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        raise RuntimeError("a begun coroutine waited for a second future")

    def cancel(self) -> None:
        """Let go of it; harmless when it has ended."""
        self._future.cancel()
        self._coroutine.close()
