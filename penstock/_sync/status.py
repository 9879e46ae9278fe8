# Written by make client from penstock/_async: change it there.
"""The services' states, and retention."""

from __future__ import annotations

from typing import Final

from penstock._sync.connection import Connection
from penstock.addresses import Service
from penstock.calls import retention, status
from penstock.group_values import LeaseStatus
from penstock.traffic_values import OutTraffic, StoredTraffic
from penstock.values import (
    IndexerStatus,
    ReaderStatus,
    RetentionReport,
    RunningSettings,
    WriterStatus,
)

DELETE_TIMEOUT_S: Final = 90.0


class Status(Connection):
    """The services' own state over a connection."""

    def writer_status(self, *, timeout_s: float | None = None) -> WriterStatus:
        """Return the writer's positions and whether it takes writes."""
        return self.run(status.writer(), timeout_s=timeout_s)

    def reader_status(self, *, timeout_s: float | None = None) -> ReaderStatus:
        """Return what the reader sees."""
        return self.run(status.reader(), timeout_s=timeout_s)

    def running_settings(
        self, service: Service, *, timeout_s: float | None = None
    ) -> RunningSettings:
        """Return those settings of a service that change while it runs."""
        return self.run(status.running_settings(service), timeout_s=timeout_s)

    def update_running_settings(
        self,
        service: Service,
        *,
        log_level: str | None = None,
        access_log: str | None = None,
        slow_call_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> RunningSettings:
        """Change what is given until the service's next start. Raises InvalidArgument."""
        call = status.update_running_settings(
            service, log_level=log_level, access_log=access_log, slow_call_ms=slow_call_ms
        )
        return self.run(call, timeout_s=timeout_s)

    def lease_status(self, *, timeout_s: float | None = None) -> LeaseStatus:
        """Return what groups were handed and have not done, and how the journal of leases is."""
        return self.run(status.leases(), timeout_s=timeout_s)

    def traffic_in(self, *, timeout_s: float | None = None) -> list[StoredTraffic]:
        """Return what was stored since the writer's start, by topic. It costs little: rates come from two calls."""
        return self.run(status.traffic_in(), timeout_s=timeout_s)

    def traffic_out(self, *, timeout_s: float | None = None) -> OutTraffic:
        """Return what consumers were sent since the reader's start, and where groups are.

        However many ask, the reader looks where groups are at most so often that it takes a twentieth of a core.
        """
        return self.run(status.traffic_out(), timeout_s=timeout_s)

    def indexer_status(self, *, timeout_s: float | None = None) -> IndexerStatus:
        """Return how far the index is."""
        return self.run(status.indexer(), timeout_s=timeout_s)

    def wait_indexed(self, commit_offset: int, *, timeout_s: float | None = None) -> IndexerStatus:
        """Wait until every record before a commit offset can be found by key."""
        return self.run(status.wait_indexed(commit_offset), timeout_s=timeout_s)

    def retention(self, *, timeout_s: float | None = None) -> RetentionReport:
        """Return which files of the log are deleted when, and what holds them."""
        return self.run(retention.report(), timeout_s=timeout_s)

    def delete_expired(
        self, older_than_ms: int | None = None, *, timeout_s: float = DELETE_TIMEOUT_S
    ) -> RetentionReport:
        """Delete the files of the log that are older than that, or than the retention, at once.

        Files that somebody needs and the newest file stay. A deletion that takes longer than a minute goes
        on, and the report has ``is_deleting``. A second call meanwhile is retried. Raises InvalidArgument
        without an age where retention is off.
        """
        return self.run(retention.delete_expired(older_than_ms), timeout_s=timeout_s)
