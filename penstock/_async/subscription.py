"""Messages of a topic shared by a consumer group, each leased until it is settled."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Self

from penstock._async.connection import AsyncConnection
from penstock._async.lease_keeper import AsyncLeaseKeeper
from penstock._async.receiver import AsyncReceiver
from penstock.closing import AsyncClosing
from penstock.consuming.handlers import AsyncHandlers
from penstock.consuming.options import SubscribeOptions
from penstock.errors import DataLoss, InvalidArgument
from penstock.leased import LeasedBatch, LeasedRecord

_log = logging.getLogger(__name__)
_GONE_MS: Final = 1_000  # after which what a member had that has gone is handed out again


class AsyncSubscription(AsyncIterator[LeasedRecord]):
    """Messages leased to this member of a group; made by `AsyncClient.subscribe`, used by one task.

    A message is acknowledged when the next one is asked for, unless it was settled before. The end of
    its block acknowledges the last one, or gives it back after an exception. Leases are renewed
    while the subscription is open. It outlasts a restart of the reader. After an interrupt or a cancellation
    of ``next`` the iteration goes on with the next message.
    """

    def __init__(self, client: AsyncConnection, options: SubscribeOptions) -> None:
        if not options.group:
            raise InvalidArgument(
                "group: a subscription is that of a consumer group", field="group"
            )
        for field in ("lease_ms", "prefetch", "prefetch_bytes"):
            if getattr(options, field) < 1:
                raise InvalidArgument(f"{field}: at least 1", field=field)
        self._keeper = AsyncLeaseKeeper(client, options)
        self._receiver = AsyncReceiver(client, options, self._keeper)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        current = self._receiver.prefetched.current
        if current is not None:
            if kind is None:
                current.ack()
            else:
                current.nack()
        await self.close()

    def __del__(self) -> None:
        if hasattr(self, "_receiver"):  # it was made whole
            self._receiver.stop()
            self._keeper.background.stop()

    async def __anext__(self) -> LeasedRecord:
        if not await self._has_next():
            await self.close()
            raise StopAsyncIteration
        return self._receiver.prefetched.next_record()

    def batches(self, max_messages: int = 32) -> AsyncLeasedBatches:
        """Return an iterator over batches of up to ``max_messages``; it does not wait for more.

        A batch is acknowledged when the next one is asked for; messages that were settled before keep their
        outcome. A damaged record raises DataLoss, unless ``on_damaged`` is given; the next iteration goes on
        after it.
        """
        if max_messages < 1:
            raise InvalidArgument("max_messages: at least 1", field="max_messages")
        return AsyncLeasedBatches(self, max_messages)

    async def _next_batch(self, max_messages: int) -> LeasedBatch | None:
        if not await self._has_next():
            await self.close()
            return None
        return self._receiver.prefetched.next_batch(max_messages)

    async def _has_next(self) -> bool:
        """Acknowledge what was handed out last, and wait for a message; False at the end."""
        self._keeper.start()
        self._receiver.prefetched.acknowledge_current()
        return await self._receiver.has_next()

    async def run(self, handler: Callable[[LeasedRecord], Any], *, concurrency: int = 8) -> None:
        """Call ``handler`` with each message, up to ``concurrency`` at once, until it is closed.

        A return acknowledges the message; an exception gives it back, by the group's backoff. The handler may
        settle the message itself. A damaged record is logged, unless ``on_damaged`` is given.
        """
        try:
            async with AsyncHandlers(concurrency) as handlers:
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
            await self.close()

    def stop(self) -> None:
        """End the iteration, or `run`, after the messages in hand; any thread may call it."""
        self._receiver.stop()

    async def close(self) -> None:
        """Send the outcomes of settled messages and give the rest back. Closing twice does nothing."""
        await self._receiver.close()
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


class AsyncLeasedBatches(AsyncIterator[LeasedBatch], AsyncClosing):
    """Batches of a subscription. Unlike a generator it survives an interrupt or a cancellation."""

    def __init__(self, subscription: AsyncSubscription, max_messages: int) -> None:
        self._subscription = subscription
        self._max_messages = max_messages
        self._is_closed = False

    async def close(self) -> None:
        """End the iteration; the subscription stays open, with the last batch. Closing twice does nothing."""
        self._is_closed = True

    async def __anext__(self) -> LeasedBatch:
        if self._is_closed:
            raise StopAsyncIteration
        batch = await self._subscription._next_batch(self._max_messages)
        if batch is None:
            raise StopAsyncIteration
        return batch
