"""Iterators over queues and over the answer to a query by key."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc

from penstock._async.connection import AsyncConnection
from penstock.closing import AsyncClosing
from penstock.consuming.consumption import Consumption, open_consumption
from penstock.consuming.in_flight import Answered, AsyncInFlightCalls, open_when_awaited
from penstock.consuming.key_query import KeyQuery
from penstock.consuming.options import ConsumeOptions
from penstock.errors import ClientClosed, DeadlineExceeded, PenstockError, Unavailable
from penstock.record import Record

_log = logging.getLogger(__name__)
_WAIT_MIN_S = 0.001


class AsyncConsumer(AsyncIterator[Record], AsyncClosing):
    """Records of a topic's queues, one by one; made by `AsyncClient.consume`, used by one task.

    With a group and ``auto_commit`` the consumer commits the group's offsets while it iterates, and on
    `close`. A record is consumed when the next one is asked for, so a crash repeats records and never loses
    one; `commit` includes the current record. The consumer finds the queues and their starts at the first
    record. After an interrupt or a cancellation of ``next`` the iteration goes on with the next record.
    """

    def __init__(self, client: AsyncConnection, options: ConsumeOptions) -> None:
        self._client = client
        self._options = options
        self._core: Consumption | None = None
        self._answers: deque[Answered] = deque()  # each stays until all of it is taken in
        self._pulls = AsyncInFlightCalls(client.channels, self._answers.append)
        self._auto_commits = options.auto_commit and bool(options.group)
        self._monotonic = client.clock.monotonic
        self._commit_at = self._monotonic() + options.commit_interval_ms / 1000
        self._closed = False
        open_when_awaited(self._opened)

    async def __anext__(self) -> Any:  # Record, of a consumer by ranges RecordRange
        if self._closed:
            raise ClientClosed("the consumer is closed")
        core = self._core or await self._opened()
        if core.is_torn:
            core = self._restarted(core)
        while True:
            if self._auto_commits and self._monotonic() >= self._commit_at:
                await self._commit_in_its_turn()
            record = core.next_record()
            if record is not None:
                return record
            if core.is_finished:
                if self._auto_commits:
                    await self._commit(with_current=True)
                raise StopAsyncIteration
            await self._wait(core)

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to consume by queue id, with the current record consumed."""
        return self._positions(with_current=True)

    def _positions(self, *, with_current: bool) -> dict[int, int]:
        return {} if self._core is None else self._core.positions(with_current=with_current)

    @property
    def deleted_counts(self) -> dict[int, int]:
        """The number of messages by queue id that retention deleted before this consumer read them."""
        return {} if self._core is None else self._core.deleted_counts

    async def commit(self) -> None:
        """Commit the group's offsets, the current record included."""
        await self._commit(with_current=True)

    async def close(self) -> None:
        """Stop pulling; with ``auto_commit`` commit the consumed records. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        await self._pulls.cancel()
        if self._auto_commits:
            await self._commit(with_current=False)

    async def _opened(self) -> Consumption:
        if self._core is None:
            plan = open_consumption(self._options, self._client.retry)
            self._core = await self._client.run(plan, lane="iterators")
        return self._core

    def _restarted(self, core: Consumption) -> Consumption:
        """Go on from the positions, as the last call was interrupted in the midst of a change."""
        core = core.restarted()
        answers: deque[Answered] = deque()
        left, pulls = self._pulls, AsyncInFlightCalls(self._client.channels, answers.append)
        self._core, self._answers, self._pulls = core, answers, pulls
        left.cancel_soon()
        return core

    async def _wait(self, core: Consumption) -> None:
        now = self._monotonic()
        self._start_due(core, now)
        waits = [] if (due_s := core.next_due_s(now)) is None else [due_s]
        if self._auto_commits:
            waits.append(self._commit_at - now)
        if not self._answers:
            await self._pulls.wait(max(_WAIT_MIN_S, min(waits)) if waits else None)
        if self._answers:
            self._take_in(core)

    def _take_in(self, core: Consumption) -> None:
        now = self._monotonic()
        core.is_torn = True
        queue, call, outcome, is_followed = self._answers.popleft()
        try:
            if isinstance(outcome, grpc.RpcError):
                raise self._client.error_of(call, outcome) from outcome
            if isinstance(outcome, Exception):
                raise outcome
            core.on_result(queue, call.interpret(outcome), now, is_followed=is_followed)
        except PenstockError as error:
            core.on_error(queue, error, now)
        self._start_due(core, now)

    def _start_due(self, core: Consumption, now: float) -> None:
        core.is_torn = True
        for queue, call in core.due(now):
            timeout_s = self._options.timeout_s + call.wait_ms / 1000
            self._pulls.start(queue, call, timeout_s, core.following_pull)
        core.is_torn = False

    async def _commit_in_its_turn(self) -> None:
        self._commit_at = self._monotonic() + self._options.commit_interval_ms / 1000
        try:
            await self._commit(with_current=True)  # the next record is being asked for
        except (Unavailable, DeadlineExceeded) as error:
            _log.warning("offsets of group %s: %s", self._options.group, error)

    async def _commit(self, *, with_current: bool) -> None:
        if self._core is None:
            return
        for queue, queue_offset, call in self._core.commits(with_current=with_current):
            await self._client.run(call, lane="iterators")
            queue.committed = queue_offset


class AsyncKeyRecords(AsyncIterator[Record]):
    """Records that carry a key, fetched page by page; made by `AsyncClient.query_by_key`."""

    def __init__(self, client: AsyncConnection, query: KeyQuery) -> None:
        self._client = client
        self._query = query

    @property
    def indexed_offset(self) -> int:
        """The commit offset from which on records were not indexed when the last page was made."""
        return self._query.indexed_offset

    async def __anext__(self) -> Record:
        while True:
            record = self._query.next_record()
            if record is not None:
                return record
            call = self._query.next_call()
            if call is None:
                raise StopAsyncIteration
            self._query.on_page(await self._client.run(call, lane="iterators"))
