"""Messages of a topic shared by a consumer group, each leased until it is settled."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

import grpc

from penstock._async.connection import AsyncConnection
from penstock._async.lease_keeper import AsyncLeaseKeeper
from penstock.calls import leases
from penstock.consuming.damaged import damage_error
from penstock.consuming.handlers import AsyncHandlers
from penstock.consuming.in_flight import AsyncInFlightCalls
from penstock.consuming.options import SubscribeOptions
from penstock.consuming.prefetched import Prefetched
from penstock.errors import (
    ClientClosed,
    DataLoss,
    DeadlineExceeded,
    InvalidArgument,
    PenstockError,
    ResourceExhausted,
    Unavailable,
)
from penstock.leased import LeasedBatch, LeasedRecord, Received

_log = logging.getLogger(__name__)
_RECEIVED_MAX: Final = 1_024  # messages of one receive
_GONE_MS: Final = 1_000  # after which what a member had that has gone is handed out again
_PASSING: Final = (Unavailable, DeadlineExceeded, ResourceExhausted)


class AsyncSubscription(AsyncIterator[LeasedRecord]):
    """Messages leased to this member of a group; made by `AsyncClient.subscribe`, used by one task.

    A message is acknowledged when the next one is asked for, unless it was settled before; leaving
    the ``async with`` block acknowledges the last one too, or gives it back if an exception is on its
    way. Leases are renewed for as long as the subscription is open. Its reader may be away for a
    while: the subscription goes on when it is back.
    """

    def __init__(self, client: AsyncConnection, options: SubscribeOptions) -> None:
        if not options.group:
            raise InvalidArgument(
                "group: a subscription is that of a consumer group", field="group"
            )
        for field in ("lease_ms", "prefetch", "prefetch_bytes"):
            if getattr(options, field) < 1:
                raise InvalidArgument(f"{field}: at least 1", field=field)
        self._client = client
        self._options = options
        self._keeper = AsyncLeaseKeeper(client, options)
        self._calls = AsyncInFlightCalls()
        self._prefetched = Prefetched(self._keeper.outcomes)
        self._current: LeasedRecord | LeasedBatch | None = None
        self._is_receiving = False
        self._failures = 0
        self._failed_at: float | None = None
        self._quiet_since = client.clock.monotonic()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        if self._current is not None:
            if kind is None:
                self._current.ack()
            else:
                self._current.nack()
        await self.close()

    def __del__(self) -> None:
        if hasattr(self, "_prefetched"):  # it was made whole
            self._calls.cancel_soon()
            self._keeper.background.stop()

    async def __anext__(self) -> LeasedRecord:
        self._acknowledge_current()
        if not await self._has_next():
            await self.close()
            raise StopAsyncIteration
        self._current = message = self._prefetched.next_record()
        return message

    async def batches(self, max_messages: int = 32) -> AsyncIterator[LeasedBatch]:
        """Yield messages many at a time: up to ``max_messages``, as many as there are without waiting for more.

        A batch is acknowledged when the next one is asked for, but for those of its messages that were
        settled. A damaged record ends the iteration with DataLoss, unless ``on_damaged`` is given; another
        call goes on after it.
        """
        if max_messages < 1:
            raise InvalidArgument("max_messages: at least 1", field="max_messages")
        while True:
            self._acknowledge_current()
            if not await self._has_next():
                break
            self._current = batch = self._prefetched.next_batch(max_messages)
            yield batch
        await self.close()

    def _acknowledge_current(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.ack()

    async def run(self, handler: Callable[[LeasedRecord], Any], *, concurrency: int = 8) -> None:
        """Call ``handler`` with each message, up to ``concurrency`` at once, until it is closed.

        What it returns from is acknowledged, what it raises for is given back and comes again by the
        group's backoff, unless the handler settled the message itself. A damaged record is logged, unless
        ``on_damaged`` is given.
        """
        try:
            async with AsyncHandlers(concurrency) as handlers:
                while True:
                    if not await self._has_next():
                        break
                    try:
                        message = self._prefetched.next_record()
                    except DataLoss as error:
                        _log.error("%s", error)
                        continue
                    await handlers.start(self._handle, handler, message)
        finally:
            await self.close()

    def stop(self) -> None:
        """Have the iteration, or `run`, end after the messages in hand; any thread may say so."""
        self._is_closed = True
        self._calls.cancel_soon()

    async def close(self) -> None:
        """Send what is settled and give the rest back. Closing twice does nothing."""
        self._is_closed = True
        self._prefetched.clear()
        await self._calls.cancel()
        self._keeper.background.stop()
        await self._keeper.background.join()

    async def _handle(self, handler: Callable[[LeasedRecord], Any], message: LeasedRecord) -> None:
        try:
            await handler(message)
        except Exception:  # noqa: BLE001  of a handler, which may raise anything
            _log.exception(
                "handler failed for message %s of %s, attempt %d",
                message.message_id,
                message.topic,
                message.attempt,
            )
            message.nack()
        except BaseException:  # it was cancelled, or ends its thread: as of a member that goes
            message.nack(_GONE_MS)
            raise
        else:
            message.ack()

    async def _has_next(self) -> bool:
        """Wait for a message; False once closed, or after so long without one."""
        self._keeper.start()
        while not self._is_closed:
            self._receive()
            if self._prefetched:
                return True
            now = self._client.clock.monotonic()
            if self._options.idle_s is not None and now - self._quiet_since >= self._options.idle_s:
                return False
            answered = await self._calls.next(self._patience_s(now))
            if answered is not None:
                self._take(answered.purpose, answered.call, answered.outcome)
        return False

    def _patience_s(self, now: float) -> float | None:
        waits = []
        if self._options.idle_s is not None:
            waits.append(self._quiet_since + self._options.idle_s - now)
        if not self._is_receiving and self._failed_at is not None:
            waits.append(self._failed_at + self._pause_s() - now)
        return max(0.001, min(waits)) if waits else None

    def _pause_s(self) -> float:
        return self._client.retry.backoff_ms(self._failures) / 1000

    def _receive(self) -> None:
        """Have a receive under way, unless half is there, or one is under way, or one failed just now."""
        options = self._options
        if (
            self._is_receiving
            or self._prefetched.message_count > options.prefetch // 2
            or self._prefetched.size_bytes > options.prefetch_bytes // 2
        ):
            return
        now = self._client.clock.monotonic()
        if self._failed_at is not None and now < self._failed_at + self._pause_s():
            return
        wait_ms = options.wait_ms
        if options.idle_s is not None:
            wait_ms = min(wait_ms, int(options.idle_s * 1000))
        call = leases.receive(
            options.topic,
            group=options.group,
            max_messages=min(options.prefetch, _RECEIVED_MAX),
            max_bytes=max(1, options.prefetch_bytes // 2),
            lease_ms=options.lease_ms,
            wait_ms=wait_ms,
            tag=options.tag,
            sql=options.sql,
            renewed_for=(client_id := self._keeper.client_id),
        )
        self._is_receiving = True
        timeout_s = options.timeout_s + wait_ms / 1000
        self._calls.start(self._client.stub(call.method), client_id, call, timeout_s)
        if self._is_closed:  # `stop` came meanwhile
            self._calls.cancel_soon()

    def _take(self, client_id: str, call: Any, outcome: Any) -> None:
        self._is_receiving = False
        try:
            if isinstance(outcome, PenstockError):
                raise outcome
            if isinstance(outcome, grpc.RpcError):
                raise self._client.error_of(call, outcome) from outcome
            received: Received = call.interpret(outcome)
        except ClientClosed:
            if not self._is_closed:
                raise
            return
        except _PASSING as error:
            if self._failed_at is None:
                _log.warning("receive of %s: %s", self._options.topic, error)
            if not isinstance(error, ResourceExhausted) and not getattr(
                error, "never_taken", False
            ):
                self._keeper.answer_lost(client_id)
            self._failed_at = self._client.clock.monotonic()
            self._failures += 1
            return
        self._failed_at = None
        self._failures = 0
        if received.records or received.damaged:
            self._quiet_since = self._client.clock.monotonic()
        self._keeper.outcomes.received(client_id, len(received.records))
        self._prefetched.add(received, client_id)
        for damage in received.damaged:
            if self._options.on_damaged is not None:
                self._options.on_damaged(self._options.topic, damage.queue_id, damage)
            else:
                self._prefetched.add_error(
                    damage_error(damage, topic=self._options.topic, queue_id=damage.queue_id)
                )
