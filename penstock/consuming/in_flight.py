"""Calls that a consumer has under way: as futures for a thread, as tasks for an event loop.

`InFlightCalls` and `AsyncInFlightCalls` have the same methods; `Consumer` is generated from `AsyncConsumer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import grpc

from penstock.calls.call import Call
from penstock.errors import ClientClosed


class Answered(NamedTuple):
    """A call that ended: what it was made for, the call, and the response or the error."""

    purpose: Any
    call: Call[Any]
    outcome: Any


class InFlightCalls:
    """Calls under way of a consumer that one thread uses."""

    def __init__(self) -> None:
        self._answered: SimpleQueue[Answered] = SimpleQueue()
        self._running: set[Any] = set()

    def start(self, stub: Any, purpose: Any, call: Call[Any], timeout_s: float) -> None:
        """Send a call."""
        future = stub.future(call.request, timeout=timeout_s)
        self._running.add(future)
        future.add_done_callback(lambda done: self._answered.put(Answered(purpose, call, done)))

    def next(self, timeout_s: float | None) -> Answered | None:
        """Wait for a call to end and return it, None after the timeout."""
        try:
            purpose, call, future = self._answered.get(timeout=timeout_s)
        except Empty:
            return None
        self._running.discard(future)
        try:
            return Answered(purpose, call, future.result())
        except grpc.FutureCancelledError:
            return Answered(purpose, call, ClientClosed("the client was closed"))
        except grpc.RpcError as error:
            return Answered(purpose, call, error)

    def cancel(self) -> None:
        """Cancel what is under way."""
        self.cancel_soon()

    def cancel_soon(self) -> None:
        """Cancel what is under way; any thread may say so."""
        for future in tuple(self._running):
            future.cancel()


class AsyncInFlightCalls:
    """Calls under way of a consumer that one task uses."""

    def __init__(self) -> None:
        self._answered: asyncio.Queue[Answered] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()

    def start(self, stub: Any, purpose: Any, call: Call[Any], timeout_s: float) -> None:
        """Send a call."""
        task = asyncio.create_task(self._run(stub, purpose, call, timeout_s))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def next(self, timeout_s: float | None) -> Answered | None:
        """Wait for a call to end and return it, None after the timeout."""
        try:
            async with asyncio.timeout(timeout_s):
                return await self._answered.get()
        except TimeoutError:
            return None

    def cancel_soon(self) -> None:
        """Cancel what is under way, without waiting for it to end; any thread may say so."""
        for task in tuple(self._running):
            loop = task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

    async def cancel(self) -> None:
        """Cancel what is under way."""
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _run(self, stub: Any, purpose: Any, call: Call[Any], timeout_s: float) -> None:
        outcome: Any
        try:
            outcome = await stub(call.request, timeout=timeout_s)
        except grpc.RpcError as error:
            outcome = error
        except (asyncio.CancelledError, grpc.aio.UsageError):  # by `cancel`, or with the channel
            outcome = ClientClosed("the client was closed")
        self._answered.put_nowait(Answered(purpose, call, outcome))


def open_at_once(opening: Callable[[], object]) -> None:
    """Open a synchronous consumer when it is made: "latest" means the latest of that moment."""
    opening()


def open_when_awaited(opening: Callable[[], object]) -> None:
    """Leave an asyncio consumer to its first record: nothing can be awaited when it is made."""
