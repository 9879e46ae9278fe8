"""The overview: services, positions, rates, the disk, damage, and what is wrong."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from services.console.alerts import alerts_of
from services.console.page import Page
from services.console.pages.status import BYTES_AND_POSITIONS, now_ms, statuses


async def show(page: Page) -> Response:
    """Show how the store is."""
    seen = await statuses(page)
    return page.show(
        "overview.html",
        seen=seen,
        alerts=list(alerts_of(seen, now_ms())),
        is_known=all(part is not None for part in seen),
        rates={
            number: page.session.caller.rates.rate(BYTES_AND_POSITIONS, number)
            for number in ("in_bytes", "out_bytes", "in_messages", "out_messages")
        },
    )


async def rates(page: Page) -> Response:
    """Return the columns of the overview's plots."""
    await statuses(page)
    plot = page.session.caller.rates.plot(
        BYTES_AND_POSITIONS,
        rates=("in_bytes", "out_bytes", "in_messages", "out_messages"),
        levels=("unflushed", "undispatched", "unindexed"),
    )
    return JSONResponse(plot, headers={"Cache-Control": "no-store"})
