"""What a client asks the services about themselves."""

from __future__ import annotations

from penstock._async.connection import AsyncConnection
from penstock.calls import status
from penstock.values import IndexerStatus, ReaderStatus, WriterStatus


class AsyncStatus(AsyncConnection):
    """The services' own state over a connection."""

    async def writer_status(self, *, timeout_s: float | None = None) -> WriterStatus:
        """Return the writer's positions and whether it takes writes."""
        return await self.run(status.writer(), timeout_s=timeout_s)

    async def reader_status(self, *, timeout_s: float | None = None) -> ReaderStatus:
        """Return what the reader sees."""
        return await self.run(status.reader(), timeout_s=timeout_s)

    async def indexer_status(self, *, timeout_s: float | None = None) -> IndexerStatus:
        """Return how far the index is."""
        return await self.run(status.indexer(), timeout_s=timeout_s)

    async def wait_indexed(
        self, commit_offset: int, *, timeout_s: float | None = None
    ) -> IndexerStatus:
        """Wait until every record before a commit offset can be found by key."""
        return await self.run(status.wait_indexed(commit_offset), timeout_s=timeout_s)
