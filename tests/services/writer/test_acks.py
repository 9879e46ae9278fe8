"""Waiting for acknowledgements on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from services.writer.acks import Acks
from storage.errors import StoreError, StoreFailed


class Store:
    acknowledged_offset = 0
    failed: StoreError | None = None

    def add_ack_listener(self, callback: Callable[[int], None]) -> None:
        pass

    def failure(self) -> StoreError | None:
        return self.failed


def test_who_waits_for_less_and_came_later_is_woken_first() -> None:
    """A stream asks for its second batch when its first is answered, after what came meanwhile."""

    async def main() -> None:
        store = Store()
        acks = Acks(store)
        higher, lower = (asyncio.ensure_future(acks.wait(end)) for end in (200, 150))
        await asyncio.sleep(0)
        store.acknowledged_offset = 180
        acks.wake()
        await asyncio.sleep(0)
        assert (higher.done(), lower.done()) == (False, True)
        store.failed = StoreFailed("gone")
        acks.wake()
        (error,) = await asyncio.gather(higher, return_exceptions=True)
        assert isinstance(error, StoreFailed)

    asyncio.run(main())
