"""Synchronous iterators over queues and over the answer to a query by key."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import grpc

from penstock.consuming import (
    ConsumeOptions,
    Consumption,
    KeyQuery,
    QueueProgress,
    open_consumption,
)
from penstock.errors import ClientClosed, DeadlineExceeded, Unavailable
from penstock.record import Record

if TYPE_CHECKING:
    from penstock.calls.call import Call
    from penstock.client import Client
    from penstock.values import PullResult

_log = logging.getLogger(__name__)


class Consumer(Iterator[Record]):
    """Records of a topic's queues, one by one; made by `Client.consume`, used by one thread.

    With a group and ``auto_commit`` the group's offsets are committed now and then while
    iterating, and on `close`. A record counts as consumed once the next one is asked for, so that
    a crash repeats records and never loses one; `commit` counts the current record too.
    """

    def __init__(self, client: Client, options: ConsumeOptions) -> None:
        self._client = client
        self._options = options
        self._core: Consumption = client.run_plan(open_consumption(options, client.retry))
        self._arrived: SimpleQueue[tuple[QueueProgress, Call[PullResult], Any]] = SimpleQueue()
        self._running: set[Any] = set()
        self._commit_at = client.clock.monotonic() + options.commit_interval_ms / 1000
        self._closed = False

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> Record:
        if self._closed:
            raise ClientClosed("the consumer is closed")
        while True:
            if self._options.auto_commit:
                self._commit_now_and_then()
            record = self._core.next_record()
            if record is not None:
                return record
            if self._core.is_finished:
                if self._options.auto_commit:
                    self._commit(with_current=True)
                raise StopIteration
            self._wait()

    @property
    def positions(self) -> dict[int, int]:
        """By queue id the next offset to consume, the current record counted as consumed."""
        return self._core.positions(with_current=True)

    def commit(self) -> None:
        """Commit the group's offsets, the current record counted as consumed."""
        self._commit(with_current=True)

    def close(self) -> None:
        """Stop pulling; with ``auto_commit`` commit what is consumed. Closing twice does nothing."""
        if self._closed:
            return
        self._closed = True
        for future in tuple(self._running):
            future.cancel()
        if self._options.auto_commit:
            self._commit(with_current=False)

    def _wait(self) -> None:
        now = self._client.clock.monotonic()
        for queue, call in self._core.due(now):
            self._launch(queue, call)
        timeout_s = self._core.next_due_s(now)
        if timeout_s is not None and not self._running and self._arrived.empty():
            timeout_s = max(timeout_s, 0.001)
        limit = max(0.0, self._commit_at - now) if self._options.auto_commit else None
        waits = [each for each in (timeout_s, limit) if each is not None]
        try:
            item = self._arrived.get(timeout=max(0.001, min(waits)) if waits else None)
        except Empty:
            return
        self._take(*item)
        now = self._client.clock.monotonic()
        for queue, call in self._core.due(now):
            self._launch(queue, call)

    def _launch(self, queue: QueueProgress, call: Call[PullResult]) -> None:
        timeout_s = self._options.timeout_s + call.wait_ms / 1000
        future = self._client.stub(call.method).future(call.request, timeout=timeout_s)
        self._running.add(future)
        future.add_done_callback(lambda done: self._arrived.put((queue, call, done)))

    def _take(self, queue: QueueProgress, call: Call[PullResult], future: Any) -> None:
        self._running.discard(future)
        now = self._client.clock.monotonic()
        try:
            response = future.result()
        except grpc.FutureCancelledError as error:
            raise ClientClosed("the client was closed") from error
        except grpc.RpcError as error:
            failure = call.error_of(error)
            failure.__cause__ = error
            self._core.on_error(queue, failure, now)
        else:
            self._core.on_result(queue, call.interpret(response), now)

    def _commit_now_and_then(self) -> None:
        now = self._client.clock.monotonic()
        if now >= self._commit_at:
            self._commit_at = now + self._options.commit_interval_ms / 1000
            try:
                self._commit(with_current=True)  # the next record is being asked for
            except (Unavailable, DeadlineExceeded) as error:
                _log.warning("offsets of group %s: %s", self._options.group, error)

    def _commit(self, *, with_current: bool) -> None:
        for queue, queue_offset, call in self._core.commits(with_current=with_current):
            self._client.run(call)
            queue.committed = queue_offset


class KeyRecords(Iterator[Record]):
    """Records that carry a key; pages are fetched on the way. Made by `Client.query_by_key`."""

    def __init__(self, client: Client, query: KeyQuery) -> None:
        self._client = client
        self._query = query

    @property
    def indexed_offset(self) -> int:
        """Records from this commit offset on were not indexed yet when the last page was made."""
        return self._query.indexed_offset

    def __next__(self) -> Record:
        while True:
            record = self._query.next_record()
            if record is not None:
                return record
            call = self._query.next_call()
            if call is None:
                raise StopIteration
            self._query.on_page(self._client.run(call))
