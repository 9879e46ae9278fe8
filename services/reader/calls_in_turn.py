"""Calls of an engine made one after the other: at once on the event loop, or in a thread where they may block.

The first calls go to the thread, where what they need is opened. A call that had to wait for a page from the
disk sends those after it there too, until enough of them had all they read in memory and raised nothing. What
comes while the thread is busy shares its next hand-over.
"""

from __future__ import annotations

import asyncio
import resource
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

WARM_IN_A_ROW: Final = 16

_T = TypeVar("_T")


class _Submitted(NamedTuple):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class CallsInTurn:
    """All methods are for the event loop.

    With ``always_in_thread`` no call is made at once, and none is for as long as ``may_wait`` says that one might
    wait for something else than a page.
    """

    def __init__(
        self,
        name: str,
        *,
        always_in_thread: bool = False,
        may_wait: Callable[[], bool] = lambda: False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: deque[_Submitted] = deque()
        self._is_running = False
        self._always_in_thread = always_in_thread
        self._may_wait = may_wait
        self._warm_in_a_row = 0

    @property
    def is_free(self) -> bool:
        """Whether a call may be made at once: none is under way, and the last ones had all in memory."""
        if self._always_in_thread or self._is_running:
            return False
        return self._warm_in_a_row >= WARM_IN_A_ROW and not self._may_wait()

    def make(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Make a call at once, where ``is_free``."""
        before = _disk_reads()
        try:
            return function(*arguments)
        finally:
            if _disk_reads() != before:
                self._warm_in_a_row = 0

    async def run(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Make a call in its turn and return its result."""
        if self.is_free:
            return self.make(function, *arguments)
        return await self.submit(function, *arguments)

    def submit(self, function: Callable[..., _T], *arguments: Any) -> asyncio.Future[_T]:
        """Make a call in the thread, in its turn; cancelling it does not keep it from being made."""
        future: asyncio.Future[_T] = self._loop.create_future()
        self._waiting.append(_Submitted(function, arguments, future))
        if not self._is_running:
            self._is_running = True
            self._executor.submit(self._work)
        return future

    def _work(self) -> None:
        waiting = self._waiting
        outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        for _ in range(len(waiting)):
            function, arguments, future = waiting.popleft()
            before = _disk_reads()
            try:
                outcomes.append((future, function(*arguments), None))
                self._warm_in_a_row += 1
            except BaseException as error:  # noqa: BLE001  raised where it is awaited
                outcomes.append((future, None, error))
            if _disk_reads() != before:
                self._warm_in_a_row = 0
        self._loop.call_soon_threadsafe(self._settle, outcomes)

    def _settle(
        self, outcomes: list[tuple[asyncio.Future[Any], Any, BaseException | None]]
    ) -> None:
        if self._waiting:
            self._executor.submit(self._work)
        else:
            self._is_running = False
        for future, result, error in outcomes:
            if future.done():
                continue
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    def close(self) -> None:
        """Return when the calls under way are made; none may be submitted any more."""
        self._executor.shutdown(wait=True)


def _disk_reads() -> int:
    """Return how often this thread has waited for a page of a mapped file."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
