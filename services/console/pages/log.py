"""The log: its files in time, retention, damage, and what repairs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from starlette.responses import Response

from services.console.page import Page
from services.console.pages.status import now_ms, statuses
from services.console.topic_mix import TopicMix, topic_mix

FILES_SHOWN_MAX: Final = 400  # of the strip, the newest
MIX_FRESH_S: Final = 600.0  # it asks about all queues


async def show(page: Page) -> Response:
    """Show the log's files and what is known of damage."""
    seen = await statuses(page)
    files = seen.retention.files if seen.retention is not None else ()
    strip = files[-FILES_SHOWN_MAX:]
    mix = await page.ask(
        "reader",
        ("mix", len(files), files[:1]),
        lambda: _mix(page, strip),
        fresh_s=MIX_FRESH_S,
        patience_s=0,
    )
    return page.show(
        "log.html",
        seen=seen,
        strip=strip,
        mix=mix.value,
        sheet=page.sheet(tuple(reversed(files))),
        total=sum(each.size_bytes for each in files),
        largest=max((each.size_bytes for each in files), default=1),
        now_ms=now_ms(),
    )


async def _mix(page: Page, strip: Sequence[Any]) -> TopicMix:
    queues = await page.client.stored_queues()
    return topic_mix(
        queues, [(each.start_offset, each.start_offset + each.size_bytes) for each in strip]
    )
