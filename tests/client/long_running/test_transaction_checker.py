"""How the task of a transaction checker ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from penstock import TransactionCheck
from penstock.client.connection import LoopForm
from penstock.client.transactions import AsyncTransactionChecker


class SilentChecks:
    """A stream of checks that nobody writes to."""

    def stop(self) -> None:
        """Do nothing: its reader is cancelled itself."""

    async def next_answer(self) -> TransactionCheck:
        await asyncio.Event().wait()
        raise AssertionError


async def test_a_checker_that_is_cancelled_with_its_event_loop_ends() -> None:
    """As ``asyncio.run`` ends what is left: it waits for each task."""

    async def check(_check: TransactionCheck) -> bool:
        return True

    client: Any = SimpleNamespace(form=LoopForm, _read_ahead=lambda _: SilentChecks())
    checker = AsyncTransactionChecker(cast("Any", client), ["orders"], check)
    await checker.__aenter__()
    await asyncio.sleep(0.01)
    (task,) = asyncio.all_tasks() - {asyncio.current_task()}
    task.cancel()
    await asyncio.wait({task}, timeout=5)
    assert task.cancelled()
