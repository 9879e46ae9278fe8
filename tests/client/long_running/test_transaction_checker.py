"""How the task of a transaction checker ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

from penstock import TransactionCheck
from penstock._async.transactions import AsyncTransactionChecker


class SilentStream:
    """A stream of checks that nobody writes to."""

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    def cancel(self) -> None:
        """Do nothing: its reader is cancelled itself."""


async def test_a_checker_that_is_cancelled_with_its_event_loop_ends() -> None:
    """As ``asyncio.run`` ends what is left: it waits for each task."""

    async def check(_check: TransactionCheck) -> bool:
        return True

    client: Any = SimpleNamespace(
        channels=SimpleNamespace(stub=lambda _method: lambda _request: SilentStream())
    )
    checker = AsyncTransactionChecker(cast("Any", client), ["orders"], check)
    await checker.__aenter__()
    await asyncio.sleep(0.01)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
