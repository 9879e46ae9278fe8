"""A coroutine that starts eagerly: its first step is made at once, its end is awaited later.

An operation of gRPC starts in the first step of the coroutine that stands for it. Started like this it
goes on beside what its owner does meanwhile, without a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class EagerCoroutine(Generic[T]):
    """A coroutine that has taken its first step and waits for one future at most. Await it once, or cancel it.

    Raises at once what its first step raises.
    """

    def __init__(self, coroutine: Coroutine[Any, None, T]) -> None:
        self._coroutine = coroutine
        self._is_awaited = False
        self._future: asyncio.Future[Any] | None = None
        self._results: list[T] = []
        try:
            self._future = coroutine.send(None)
        except StopIteration as end:
            self._results.append(end.value)

    def __await__(self) -> Generator[Any, None, T]:
        self._is_awaited = True
        if self._future is None:
            return self._results.pop()
        coroutine = self._coroutine
        if not self._future.done():
            try:
                yield self._future
            except BaseException as error:  # noqa: BLE001  the coroutine decides what comes of it
                thrown: T = _ended(partial(coroutine.throw, error))
                return thrown
        result: T = _ended(partial(coroutine.send, None))
        return result

    def cancel(self) -> None:
        """Cancel it, unless it has ended. A task that awaits it is cancelled."""
        if self._future is not None:
            self._future.cancel()
        if not self._is_awaited:
            self._coroutine.close()


def _ended(resume: Callable[[], Any]) -> Any:
    """Return what a coroutine returns that is resumed for the last time."""
    try:
        resume()
    except StopIteration as end:
        return end.value
    raise RuntimeError("an eager coroutine waited for a second future")
