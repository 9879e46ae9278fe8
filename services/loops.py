"""The event loop that services run on, tasks on it that may outlive whoever awaits them, and calls that gather."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")
ItemT = TypeVar("ItemT")
OutcomeT = TypeVar("OutcomeT")


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


class Gathering(Generic[ItemT, OutcomeT]):
    """Makes one call at a time for many callers: what comes while it is under way goes together in the next.

    ``make`` returns an outcome for each item, in their order; one that is an exception is raised. What ``make``
    raises is raised to each caller of that call.
    """

    def __init__(
        self,
        make: Callable[[list[ItemT]], Awaitable[Sequence[OutcomeT | Exception]]],
        *,
        most: int | None = None,
        ended: Callable[[], object] | None = None,
    ) -> None:
        """A call has ``most`` items at most. ``ended`` is called when none is left."""
        self._make = make
        self._most = most
        self._ended = ended
        self._waiting: list[tuple[ItemT, asyncio.Future[OutcomeT]]] = []
        self._making: asyncio.Task[None] | None = None

    async def outcome(self, item: ItemT) -> OutcomeT:
        """Return what became of an item."""
        future: asyncio.Future[OutcomeT] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._making is None:
            self._making = asyncio.create_task(self._make_all())
        return await future

    async def close(self) -> None:
        """Make no more calls; who waits is cancelled."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)

    async def _make_all(self) -> None:
        taken: list[tuple[ItemT, asyncio.Future[OutcomeT]]] = []
        try:
            await asyncio.sleep(0)  # those of the same turn of the loop go together
            while self._waiting:
                taken = self._waiting[: self._most]
                del self._waiting[: self._most]
                for (_, future), outcome in zip(taken, await self._made(taken), strict=True):
                    if future.done():  # its caller has gone
                        continue
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            self._making = None
            if self._ended is not None:
                self._ended()
            for _, future in (*taken, *self._waiting):
                future.cancel()

    async def _made(
        self, taken: list[tuple[ItemT, asyncio.Future[OutcomeT]]]
    ) -> Sequence[OutcomeT | Exception]:
        try:
            outcomes = await self._make([item for item, _ in taken])
            if len(outcomes) == len(taken):
                return outcomes
            return [ValueError(f"{len(outcomes)} outcomes of {len(taken)} items")] * len(taken)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return [RuntimeError("the call was cancelled")] * len(taken)  # with its channel
        except Exception as error:  # noqa: BLE001  each caller raises it
            return [error] * len(taken)
