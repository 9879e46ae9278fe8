"""The event loop that services run on, tasks on it that may outlive whoever awaits them, and calls that gather."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
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
    """Makes one call at a time for each key: what comes while it is under way goes together in the next.

    ``make`` is given the key and items, and returns an outcome for each item, in their order; one that is an
    exception is raised. What ``make`` raises is raised to each caller of that call.
    """

    def __init__(
        self,
        make: Callable[[Any, list[ItemT]], Awaitable[Sequence[OutcomeT | Exception]]],
        *,
        most: int | None = None,
    ) -> None:
        """A call has ``most`` items at most."""
        self._make = make
        self._most = most
        self._waiting: dict[Hashable, list[tuple[ItemT, asyncio.Future[OutcomeT]]]] = {}
        self._making: set[asyncio.Task[None]] = set()

    @property
    def key_count(self) -> int:
        """For how many keys calls are made now."""
        return len(self._waiting)

    async def outcome(self, item: ItemT, key: Hashable = None) -> OutcomeT:
        """Return what became of an item."""
        future: asyncio.Future[OutcomeT] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = []
            making = asyncio.create_task(self._make_all(key, waiting))
            self._making.add(making)
            making.add_done_callback(self._making.discard)
        waiting.append((item, future))
        return await future

    async def close(self) -> None:
        """Make no more calls; who waits is cancelled."""
        making = list(self._making)
        for each in making:
            each.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    async def _make_all(
        self, key: Hashable, waiting: list[tuple[ItemT, asyncio.Future[OutcomeT]]]
    ) -> None:
        taken: list[tuple[ItemT, asyncio.Future[OutcomeT]]] = []
        try:
            await asyncio.sleep(0)  # those of the same turn of the loop go together
            while waiting:
                taken = waiting[: self._most]
                del waiting[: self._most]
                outcomes = await self._made(key, [item for item, _ in taken])
                for (_, future), outcome in zip(taken, outcomes, strict=True):
                    if future.done():  # its caller has gone
                        continue
                    if isinstance(outcome, Exception):
                        future.set_exception(outcome)
                    else:
                        future.set_result(outcome)
        finally:
            del self._waiting[key]
            for _, future in (*taken, *waiting):
                future.cancel()

    async def _made(self, key: Hashable, items: list[ItemT]) -> Sequence[OutcomeT | Exception]:
        try:
            outcomes = await self._make(key, items)
            if len(outcomes) == len(items):
                return outcomes
            return [ValueError(f"{len(outcomes)} outcomes of {len(items)} items")] * len(items)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return [RuntimeError("the call was cancelled")] * len(items)  # with its channel
        except Exception as error:  # noqa: BLE001  each caller raises it
            return [error] * len(items)
