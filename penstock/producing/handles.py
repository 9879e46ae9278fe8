"""Handles of messages that were sent through a streaming producer."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from penstock.errors import DeadlineExceeded, PenstockError
from penstock.forms import OfLoop, OfThreads, both
from penstock.producing.batches import ProducerBatch
from penstock.values import Stored


class Waits(Protocol):
    """A handle's view of its producer."""

    async def wait_done(self, batch: ProducerBatch, timeout_s: float | None) -> bool: ...


class HandleCore:
    """The outcome of one message that was sent, in both forms."""

    __slots__ = ("_batch", "_index", "_waits")

    def __init__(self, batch: ProducerBatch, index: int, waits: Waits) -> None:
        self._batch = batch
        self._index = index
        self._waits = waits

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._batch.done

    async def _result(self, timeout_s: float | None = None) -> Stored:
        """Wait for the outcome: return where the message is stored, or raise why it is not.

        Raises UnknownOutcome if nobody answered in time: the message may be stored. Raises DeadlineExceeded
        if the wait took longer than ``timeout_s``: the message is still on its way.
        """
        await self._wait(timeout_s)
        return self._batch.result(self._index)

    result = both(_result)

    @both
    async def exception(self, timeout_s: float | None = None) -> PenstockError | None:
        """Wait for the outcome: return the error, None if the message is stored."""
        await self._wait(timeout_s)
        return self._batch.failure(self._index)

    async def _wait(self, timeout_s: float | None) -> None:
        if not self._batch.done and not await self._waits.wait_done(self._batch, timeout_s):
            raise DeadlineExceeded(f"no outcome within {timeout_s} s")


class Handle(HandleCore, OfThreads):
    """The outcome of one message that was sent."""

    __slots__ = ()


class AsyncHandle(HandleCore, OfLoop):
    """The outcome of one message; await it for the `Stored` or the error."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Stored]:
        return self._result().__await__()
