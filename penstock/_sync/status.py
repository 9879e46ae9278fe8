# Written by make client from penstock/_async: change it there.
"""The services' states, and retention."""

from __future__ import annotations

from typing import Final

from penstock import wire
from penstock._sync.connection import Connection
from penstock.addresses import Service
from penstock.calls.call import Call
from penstock.calls.status import (
    lease_status_of,
    out_traffic_of,
    plain,
    reader,
    retention_report_of,
    stored_traffic_of,
)
from penstock.group_values import LeaseStatus
from penstock.requests import build
from penstock.traffic_values import OutTraffic, StoredTraffic
from penstock.v1 import (
    indexer_pb2,
    leases_pb2,
    retention_pb2,
    settings_pb2,
    traffic_pb2,
    writer_pb2,
)
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
        call = Call(wire.WRITER_STATUS, writer_pb2.GetWriterStatusRequest(), plain(WriterStatus))
        return self.run(call, timeout_s=timeout_s)

    def reader_status(self, *, timeout_s: float | None = None) -> ReaderStatus:
        """Return what the reader sees."""
        return self.run(reader(), timeout_s=timeout_s)

    def running_settings(
        self, service: Service, *, timeout_s: float | None = None
    ) -> RunningSettings:
        """Return those settings of a service that change while it runs."""
        method, _ = wire.settings_methods(service)
        call = Call(method, settings_pb2.GetSettingsRequest(), plain(RunningSettings))
        return self.run(call, timeout_s=timeout_s)

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
        _, method = wire.settings_methods(service)
        request = build(
            settings_pb2.UpdateSettingsRequest,
            log_level=log_level,
            access_log=access_log,
            slow_call_ms=slow_call_ms,
        )
        call = Call(method, request, plain(RunningSettings))
        return self.run(call, timeout_s=timeout_s)

    def lease_status(self, *, timeout_s: float | None = None) -> LeaseStatus:
        """Return what groups were handed and have not done, and how the journal of leases is."""
        call = Call(wire.LEASE_STATUS, leases_pb2.GetLeaseStatusRequest(), lease_status_of)
        return self.run(call, timeout_s=timeout_s)

    def traffic_in(self, *, timeout_s: float | None = None) -> list[StoredTraffic]:
        """Return what was stored since the writer's start, by topic. It costs little: rates come from two calls."""
        call = Call(wire.TRAFFIC_IN, traffic_pb2.GetTrafficRequest(), stored_traffic_of)
        return self.run(call, timeout_s=timeout_s)

    def traffic_out(self, *, timeout_s: float | None = None) -> OutTraffic:
        """Return what consumers were sent since the reader's start, and where groups are.

        However many ask, the reader looks where groups are at most so often that it takes a twentieth of a core.
        """
        call = Call(wire.TRAFFIC_OUT, traffic_pb2.GetTrafficRequest(), out_traffic_of)
        return self.run(call, timeout_s=timeout_s)

    def indexer_status(self, *, timeout_s: float | None = None) -> IndexerStatus:
        """Return how far the index is."""
        call = Call(
            wire.INDEXER_STATUS, indexer_pb2.GetIndexerStatusRequest(), plain(IndexerStatus)
        )
        return self.run(call, timeout_s=timeout_s)

    def wait_indexed(self, commit_offset: int, *, timeout_s: float | None = None) -> IndexerStatus:
        """Wait until every record before a commit offset can be found by key."""
        request = build(indexer_pb2.WaitIndexedRequest, commit_offset=commit_offset)
        call = Call(wire.WAIT_INDEXED, request, plain(IndexerStatus))
        return self.run(call, timeout_s=timeout_s)

    def retention(self, *, timeout_s: float | None = None) -> RetentionReport:
        """Return which files of the log are deleted when, and what holds them."""
        call = Call(wire.GET_RETENTION, retention_pb2.GetRetentionRequest(), retention_report_of)
        return self.run(call, timeout_s=timeout_s)

    def delete_expired(
        self, older_than_ms: int | None = None, *, timeout_s: float = DELETE_TIMEOUT_S
    ) -> RetentionReport:
        """Delete the files of the log that are older than that, or than the retention, at once.

        Files that somebody needs and the newest file stay. A deletion that takes longer than a minute goes
        on, and the report has ``is_deleting``. A second call meanwhile is retried. Raises InvalidArgument
        without an age where retention is off.
        """
        request = build(retention_pb2.DeleteExpiredRequest, older_than_ms=older_than_ms)
        call = Call(wire.DELETE_EXPIRED, request, retention_report_of)
        return self.run(call, timeout_s=timeout_s)
