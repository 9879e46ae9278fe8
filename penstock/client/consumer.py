"""Iterators over queues."""

from __future__ import annotations

import logging
from collections import deque
from typing import Any

import grpc

from penstock.client.connection import ConnectionCore
from penstock.consuming.consumption import Consumption, open_consumption
from penstock.consuming.in_flight import Answered
from penstock.consuming.options import ConsumeOptions
from penstock.errors import ClientClosed, DeadlineExceeded, PenstockError, Unavailable
from penstock.forms import (
    AsyncClosing,
    AsyncIterating,
    Closing,
    Iterating,
    both,
    finished,
)
from penstock.record import Record

_log = logging.getLogger(__name__)
_WAIT_MIN_S = 0.001


class ConsumerCore:
    """An iterator over a topic's queues, in both forms."""

    def __init__(self, client: ConnectionCore, options: ConsumeOptions) -> None:
        self._client = client
        self._options = options
        self._core: Consumption | None = None
        self._answers: deque[Answered] = deque()  # each stays until all of it is taken in
        self._pulls = client._in_flight(self._answers.append)
        self._auto_commits = options.auto_commit and bool(options.group)
        self._monotonic = client.clock.monotonic
        self._commit_at = self._monotonic() + options.commit_interval_ms / 1000
        self._closed = False

    async def _next_item(self) -> Any:  # Record, of a consumer by ranges RecordRange
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

    @both
    async def commit(self) -> None:
        """Commit the group's offsets, the current record included."""
        await self._commit(with_current=True)

    async def _close(self) -> None:
        """Stop pulling; with ``auto_commit`` commit the consumed records. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        self._pulls.cancel()
        if self._auto_commits:
            await self._commit(with_current=False)

    close = both(_close)

    async def _opened(self) -> Consumption:
        if self._core is None:
            plan = open_consumption(self._options, self._client.retry)
            self._core = await self._client._send(plan, lane="iterators")
        return self._core

    def _restarted(self, core: Consumption) -> Consumption:
        """Go on from the positions, as the last call was interrupted in the midst of a change."""
        core = core.restarted()
        answers: deque[Answered] = deque()
        left, pulls = (
            self._pulls,
            self._client._in_flight(answers.append),
        )
        self._core, self._answers, self._pulls = core, answers, pulls
        left.cancel()
        return core

    async def _wait(self, core: Consumption) -> None:
        now = self._monotonic()
        self._start_due(core, now)
        waits = [] if (due_s := core.next_due_s(now)) is None else [due_s]
        if self._auto_commits:
            waits.append(self._commit_at - now)
        patience_s = max(_WAIT_MIN_S, min(waits)) if waits else None
        await self._pulls.wait(0 if self._answers else patience_s)
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
            await self._client._send(call, lane="iterators")
            queue.committed = queue_offset


class Consumer(ConsumerCore, Iterating[Record], Closing):
    """Records of a topic's queues, one by one; made by `Client.consume`, used by one thread.

    With a group and ``auto_commit`` the consumer commits the group's offsets while it iterates, and on
    `close`. A record is consumed when the next one is asked for, so a crash repeats records and never loses
    one; `commit` includes the current record. The consumer finds the queues and their starts when it is made.
    After an interrupt of ``next`` the iteration goes on with the next record.
    """

    def __init__(self, client: ConnectionCore, options: ConsumeOptions) -> None:
        super().__init__(client, options)
        finished(self._opened)

    def __next__(self) -> Any:  # as `_next_item`
        core = self._core
        if (
            core is not None
            and not (core.is_torn or self._closed)
            and not (self._auto_commits and self._monotonic() >= self._commit_at)
        ):
            record = core.next_record()  # without a coroutine for each that is here
            if record is not None:
                return record
        return super().__next__()


class AsyncConsumer(ConsumerCore, AsyncIterating[Record], AsyncClosing):
    """As `Consumer`, for one task. It finds the queues and their starts at the first record."""
