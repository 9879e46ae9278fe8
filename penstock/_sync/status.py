# Written by make client from penstock/_async: change it there.
"""What a client asks the services about themselves."""

from __future__ import annotations

from penstock._sync.connection import Connection
from penstock.calls import status
from penstock.values import IndexerStatus, ReaderStatus, WriterStatus


class Status(Connection):
    """The services' own state over a connection."""

    def writer_status(self, *, timeout_s: float | None = None) -> WriterStatus:
        """Return the writer's positions and whether it takes writes."""
        return self.run(status.writer(), timeout_s=timeout_s)

    def reader_status(self, *, timeout_s: float | None = None) -> ReaderStatus:
        """Return what the reader sees."""
        return self.run(status.reader(), timeout_s=timeout_s)

    def indexer_status(self, *, timeout_s: float | None = None) -> IndexerStatus:
        """Return how far the index is."""
        return self.run(status.indexer(), timeout_s=timeout_s)

    def wait_indexed(self, commit_offset: int, *, timeout_s: float | None = None) -> IndexerStatus:
        """Wait until every record before a commit offset can be found by key."""
        return self.run(status.wait_indexed(commit_offset), timeout_s=timeout_s)
