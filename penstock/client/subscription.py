"""Messages of a topic shared by a consumer group, each leased until it is settled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from penstock.client.connection import ConnectionCore
from penstock.client.lease_keeper import LeaseKeeper
from penstock.client.receiver import Receiver
from penstock.consuming.options import SubscribeOptions
from penstock.errors import DataLoss, InvalidArgument
from penstock.forms import (
    AsyncClosing,
    AsyncIterating,
    Closing,
    Iterating,
    OfLoop,
    both,
    check_kind,
    makes,
)
from penstock.leased import LeasedBatch, LeasedRecord

_log = logging.getLogger(__name__)
_GONE_MS: Final = 1_000  # after which what a member had that has gone is handed out again


class LeasedBatchesCore:
    """Batches of a subscription. Unlike a generator it survives an interrupt or a cancellation."""

    def __init__(self, subscription: SubscriptionCore, max_messages: int) -> None:
        self._subscription = subscription
        self._max_messages = max_messages
        self._is_closed = False

    @both
    async def close(self) -> None:
        """End the iteration; the subscription stays open, with the last batch. Closing twice does nothing."""
        self._is_closed = True

    async def _next_item(self) -> LeasedBatch:
        if self._is_closed:
            raise StopAsyncIteration
        return await self._subscription._next_batch(self._max_messages)


class LeasedBatches(LeasedBatchesCore, Iterating[LeasedBatch], Closing):
    """Batches for one thread."""


class AsyncLeasedBatches(LeasedBatchesCore, AsyncIterating[LeasedBatch], AsyncClosing):
    """Batches for one task."""


class SubscriptionCore:
    """Messages leased to this member of a group, in both forms."""

    def __init__(self, client: ConnectionCore, options: SubscribeOptions) -> None:
        if not options.group:
            raise InvalidArgument(
                "group: a subscription is that of a consumer group", field="group"
            )
        for field in ("lease_ms", "prefetch", "prefetch_bytes"):
            if getattr(options, field) < 1:
                raise InvalidArgument(f"{field}: at least 1", field=field)
        self._handlers = client.form.handlers
        self._keeper = LeaseKeeper(client, options)
        self._receiver = Receiver(client, options, self._keeper)

    def _leaving(self, kind: object) -> None:
        """Acknowledge the last message at the end of the block, or give it back after an exception."""
        current = self._receiver.prefetched.current
        if current is not None:
            if kind is None:
                current.ack()
            else:
                current.nack()

    def __del__(self) -> None:
        if hasattr(self, "_receiver"):  # it was made whole
            self._receiver.stop()
            self._keeper.background.stop()

    async def _next_item(self) -> LeasedRecord:
        if not await self._has_next():
            await self._close()
            raise StopAsyncIteration
        return self._receiver.prefetched.next_record()

    @makes(LeasedBatches, AsyncLeasedBatches)
    def batches(self, max_messages: int = 32) -> tuple[Any, ...]:
        """Return an iterator over batches of up to ``max_messages``; it does not wait for more.

        A batch is acknowledged when the next one is asked for; messages that were settled before keep their
        outcome. A damaged record raises DataLoss, unless ``on_damaged`` is given; the next iteration goes on
        after it.
        """
        if max_messages < 1:
            raise InvalidArgument("max_messages: at least 1", field="max_messages")
        return (max_messages,)

    async def _next_batch(self, max_messages: int) -> LeasedBatch:
        """Return the next batch. Raises StopAsyncIteration at the end."""
        if not await self._has_next():
            await self._close()
            raise StopAsyncIteration
        return self._receiver.prefetched.next_batch(max_messages)

    async def _has_next(self) -> bool:
        """Acknowledge what was handed out last, and wait for a message; False at the end."""
        self._keeper.start()
        self._receiver.prefetched.acknowledge_current()
        return await self._receiver.has_next()

    @both
    async def run(self, handler: Callable[[LeasedRecord], Any], *, concurrency: int = 8) -> None:
        """Call ``handler`` with each message, up to ``concurrency`` at once, until it is closed.

        A return acknowledges the message; an exception gives it back, by the group's backoff. The handler may
        settle the message itself. A damaged record is logged, unless ``on_damaged`` is given. Raises TypeError
        if threads are given a coroutine function.
        """
        check_kind(self, handler)
        try:
            async with self._handlers(concurrency) as handlers:
                while True:
                    if not await self._has_next():
                        break
                    try:
                        message = self._receiver.prefetched.next_record()
                    except DataLoss as error:
                        _log.error("%s", error)
                        continue
                    self._receiver.prefetched.current = None  # its handler settles it
                    await handlers.start(self._handle, handler, message)
        finally:
            await self._close()

    def stop(self) -> None:
        """End the iteration, or `run`, after the messages in hand; any thread may call it."""
        self._receiver.stop()

    async def _close(self) -> None:
        """Send the outcomes of settled messages and give the rest back. Closing twice does nothing."""
        self._receiver.close()
        self._keeper.background.stop()
        await self._keeper.background.join()

    close = both(_close)

    async def _handle(self, handler: Callable[[LeasedRecord], Any], message: LeasedRecord) -> None:
        try:
            handled = handler(message)
            if isinstance(self, OfLoop):
                await handled
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


class Subscription(SubscriptionCore, Iterating[LeasedRecord], Closing):
    """Messages leased to this member of a group; made by `Client.subscribe`, used by one thread.

    A message is acknowledged when the next one is asked for, unless it was settled before. The end of
    its block acknowledges the last one, or gives it back after an exception. Leases are renewed
    while the subscription is open. It outlasts a restart of the reader. After an interrupt of ``next`` the
    iteration goes on with the next message.
    """


class AsyncSubscription(SubscriptionCore, AsyncIterating[LeasedRecord], AsyncClosing):
    """As `Subscription`, for one task. After a cancellation of ``anext`` the iteration goes on, too."""
