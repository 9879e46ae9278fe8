"""What the services say of themselves, asked once for all pages that show it."""

from __future__ import annotations

import asyncio

from services.console.alerts import Statuses
from services.console.page import Page
from storage.clock import SystemClock

BYTES_AND_POSITIONS = "log"


async def statuses(page: Page) -> Statuses:
    """Ask all services how they are; None where one never answered, or the user may not ask."""
    client = page.client
    writer, reader, indexer, retention, leases = await asyncio.gather(
        page.ask("writer", "writer", client.writer_status),
        page.ask("reader", "reader", client.reader_status),
        page.ask("indexer", "indexer", client.indexer_status),
        page.ask("writer", "retention", client.retention, fresh_s=10),
        page.ask("reader", "leases", client.lease_status, fresh_s=4),
    )
    found = Statuses(writer.value, reader.value, indexer.value, retention.value, leases.value)
    if found.writer is not None and not writer.is_away:
        page.session.caller.rates.add(
            BYTES_AND_POSITIONS,
            writer.answered_ms,
            {
                "in_bytes": found.writer.appended_offset,
                "in_messages": found.writer.stored_record_count,
                "unflushed": found.writer.appended_offset - found.writer.flushed_offset,
                "undispatched": found.writer.appended_offset - found.writer.dispatched_offset,
                "unindexed": max(0, found.writer.dispatched_offset - found.indexer.indexed_offset)
                if found.indexer is not None
                else 0,
            }
            | (
                {
                    "out_bytes": found.reader.sent_bytes,
                    "out_messages": found.reader.sent_record_count,
                }
                if found.reader is not None and not reader.is_away
                else {}
            ),
            is_plotted=True,
        )
    return found


def now_ms() -> int:
    """Return Unix milliseconds."""
    return SystemClock().now_ms()
