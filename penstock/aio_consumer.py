"""Asyncio iterators over queues and over the answer to a query by key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import grpc

from penstock.consuming import (
    ConsumeOptions,
    Consumption,
    KeyQuery,
    QueueProgress,
    open_consumption,
)
from penstock.errors import ClientClosed, DeadlineExceeded, PenstockError, Unavailable
from penstock.record import Record
from penstock.values import PullResult

if TYPE_CHECKING:
    from penstock.aio import AsyncClient
    from penstock.calls.call import Call

_log = logging.getLogger(__name__)


class AsyncConsumer(AsyncIterator[Record]):
    """Records of a topic's queues, one by one; made by `AsyncClient.consume`, used by one task.

    It behaves as `Consumer` does. Nothing is asked of the services before the first record is.
    """

    def __init__(self, client: AsyncClient, options: ConsumeOptions) -> None:
        self._client = client
        self._options = options
        self._core: Consumption | None = None
        self._arrived: asyncio.Queue[tuple[QueueProgress, PullResult | PenstockError]] = (
            asyncio.Queue()
        )
        self._running: set[asyncio.Task[None]] = set()
        self._commit_at = client.clock.monotonic() + options.commit_interval_ms / 1000
        self._closed = False

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def __anext__(self) -> Record:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        core = await self._opened()
        while True:
            if self._options.auto_commit:
                await self._commit_now_and_then()
            record = core.next_record()
            if record is not None:
                return record
            if core.is_finished:
                if self._options.auto_commit:
                    await self._commit(with_current=True)
                raise StopAsyncIteration
            await self._wait(core)

    @property
    def positions(self) -> dict[int, int]:
        """By queue id the next offset to consume, the current record counted as consumed."""
        return {} if self._core is None else self._core.positions(with_current=True)

    async def commit(self) -> None:
        """Commit the group's offsets, the current record counted as consumed."""
        await self._commit(with_current=True)

    async def close(self) -> None:
        """Stop pulling; with ``auto_commit`` commit what is consumed. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        for task in tuple(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._options.auto_commit:
            await self._commit(with_current=False)

    async def _opened(self) -> Consumption:
        if self._core is None:
            plan = open_consumption(self._options, self._client.retry)
            self._core = await self._client.run_plan(plan)
        return self._core

    async def _wait(self, core: Consumption) -> None:
        now = self._client.clock.monotonic()
        self._launch_due(core, now)
        waits = [] if (due_s := core.next_due_s(now)) is None else [due_s]
        if self._options.auto_commit:
            waits.append(self._commit_at - now)
        try:
            async with asyncio.timeout(max(0.001, min(waits)) if waits else None):
                queue, outcome = await self._arrived.get()
        except TimeoutError:
            return
        now = self._client.clock.monotonic()
        if isinstance(outcome, PullResult):
            core.on_result(queue, outcome, now)
        else:
            core.on_error(queue, outcome, now)
        self._launch_due(core, now)

    def _launch_due(self, core: Consumption, now: float) -> None:
        for queue, call in core.due(now):
            task = asyncio.create_task(self._pull(queue, call))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _pull(self, queue: QueueProgress, call: Call[PullResult]) -> None:
        timeout_s = self._options.timeout_s + call.wait_ms / 1000
        outcome: PullResult | PenstockError
        try:
            stub = self._client.stub(call.method)
            outcome = call.interpret(await stub(call.request, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            outcome = call.error_of(error)
            outcome.__cause__ = error
        except PenstockError as error:
            outcome = error
        self._arrived.put_nowait((queue, outcome))

    async def _commit_now_and_then(self) -> None:
        now = self._client.clock.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + self._options.commit_interval_ms / 1000
            try:
                await self._commit(with_current=True)  # the next record is being asked for
            except (Unavailable, DeadlineExceeded) as error:
                _log.warning("offsets of group %s: %s", self._options.group, error)

    async def _commit(self, *, with_current: bool) -> None:
        if self._core is None:
            return
        for queue, queue_offset, call in self._core.commits(with_current=with_current):
            await self._client.run(call)
            queue.committed = queue_offset


class AsyncKeyRecords(AsyncIterator[Record]):
    """Records that carry a key; pages are fetched on the way."""

    def __init__(self, client: AsyncClient, query: KeyQuery) -> None:
        self._client = client
        self._query = query

    @property
    def indexed_offset(self) -> int:
        """Records from this commit offset on were not indexed yet when the last page was made."""
        return self._query.indexed_offset

    async def __anext__(self) -> Record:
        while True:
            record = self._query.next_record()
            if record is not None:
                return record
            call = self._query.next_call()
            if call is None:
                raise StopAsyncIteration
            self._query.on_page(await self._client.run(call))
