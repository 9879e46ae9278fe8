"""What consumers do not see yet: delayed messages, and transactions that nobody has ended."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from services.console.page import BadInput, Page
from services.console.pages.status import now_ms

EDGES_S: Final = {
    "a second": 1, "a minute": 60, "an hour": 3_600, "a day": 86_400, "3 days": 259_200, "40 days": 3_456_000,
}  # fmt: skip


async def show(page: Page) -> Response:
    """Show delayed messages by when they are due, and open transactions."""
    counts, pending = await asyncio.gather(
        page.ask("writer", "timers", lambda: page.client.timers(within_s=list(EDGES_S.values()))),
        page.ask("writer", "transactions", page.client.pending_transactions),
    )
    return page.show(
        "later.html",
        counts=counts.value,
        counts_problem=counts.error.message if counts.error is not None else "",
        edges=EDGES_S,
        pending=pending.value,
        pending_problem=pending.error.message if pending.error is not None else "",
        sheet=page.sheet(pending.value or []),
        now_ms=now_ms(),
    )


async def recall(page: Page) -> Response:
    """Cancel a delayed message."""
    key = await page.client.recall(page.given("handle"), topic=page.given("topic"))
    return page.done(f"Recalled: message {key} is not delivered.", "/later")


async def end(page: Page) -> Response:
    """Commit or roll back a transaction."""
    end_as, name = page.given("end"), page.given("transaction_id")
    if end_as not in ("commit", "rollback"):
        raise BadInput("end: commit or rollback")
    [ended] = await page.client.end_transactions([name], commit=end_as == "commit")
    problem = f": {ended.problem}" if ended.problem else ""
    return page.done(f"Transaction {name}: {ended.state}{problem}.", "/later")
