"""The services' health and state, and retention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from grpc_health.v1 import health_pb2

from penstock import wire
from penstock.addresses import Service
from penstock.calls.call import Call
from penstock.calls.operation import operation, operation_of
from penstock.requests import build, each, value, value_of
from penstock.v1 import (
    indexer_pb2,
    leases_pb2,
    reader_pb2,
    retention_pb2,
    settings_pb2,
    traffic_pb2,
    writer_pb2,
)
from penstock.values import (
    IndexerStatus,
    ReaderStatus,
    RetainedFile,
    RetentionReport,
    RunningSettings,
    WriterStatus,
)
from penstock.wire import Method

DELETE_TIMEOUT_S: Final = 90.0
HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"
HEALTH_NAMES: Final[Mapping[Service, str]] = {
    "writer": "penstock.v1.Writer",
    "reader": "penstock.v1.Reader",
    "indexer": "penstock.v1.Indexer",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLeases:
    """Messages that a group was handed in all its topics and that are not done; as in `GroupQueue`."""

    group: str
    leased: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """The journal of leases, and the leased messages by group.

    ``problem`` is why leases and acknowledgements are refused until the reader starts again; "" if none.
    """

    journal_bytes: int
    problem: str
    groups: tuple[GroupLeases, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTraffic:
    """Messages that were stored in a topic since the writer's start, and the bytes of their records."""

    topic: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTraffic:
    """Messages of a topic that the consumers of a group were sent since the reader's start, and the answers' bytes.

    ``group`` is "" for pulls, which name none.
    """

    topic: str
    group: str
    messages: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """A group in all queues of a topic.

    ``lag`` counts the messages that are not done: of these ``leased`` are under a lease, and ``ready`` were never
    handed out. ``done`` is the sum of the offsets before which all is done. ``oldest_ms``, Unix milliseconds, is when the
    oldest message that is not done was stored; 0 if there is none, or if that is not known.
    """

    group: str
    topic: str
    lag: int
    leased: int
    ready: int
    done: int
    oldest_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutTraffic:
    """What consumers were sent, and where groups were at ``lags_at_ms``, Unix milliseconds."""

    sent: tuple[SentTraffic, ...]
    lags: tuple[GroupLag, ...]
    lags_at_ms: int


def health(service: Service) -> Call[bool]:
    """Ask whether a service reports SERVING."""
    request, response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    return Call(
        Method(service, HEALTH_PATH, request.SerializeToString, response.FromString),
        request(service=HEALTH_NAMES[service]),
        lambda answer: bool(answer.status == response.SERVING),
    )


def reader_status(*, timeout_s: float | None = None) -> Call[ReaderStatus]:
    """Return what the reader sees."""
    request = reader_pb2.GetReaderStatusRequest()
    return Call(wire.READER_STATUS, request, value(ReaderStatus), timeout_s=timeout_s)


class StatusOperations:
    """The services' own state."""

    reader_status = operation_of(reader_status)

    @operation
    def writer_status(self, *, timeout_s: float | None = None) -> Call[WriterStatus]:
        """Return the writer's positions and whether it takes writes."""
        request = writer_pb2.GetWriterStatusRequest()
        return Call(wire.WRITER_STATUS, request, value(WriterStatus), timeout_s=timeout_s)

    @operation
    def indexer_status(self, *, timeout_s: float | None = None) -> Call[IndexerStatus]:
        """Return how far the index is."""
        request = indexer_pb2.GetIndexerStatusRequest()
        return Call(wire.INDEXER_STATUS, request, value(IndexerStatus), timeout_s=timeout_s)

    @operation
    def wait_indexed(
        self, commit_offset: int, *, timeout_s: float | None = None
    ) -> Call[IndexerStatus]:
        """Wait until every record before a commit offset can be found by key."""
        request = build(indexer_pb2.WaitIndexedRequest, commit_offset=commit_offset)
        return Call(wire.WAIT_INDEXED, request, value(IndexerStatus), timeout_s=timeout_s)

    @operation
    def running_settings(
        self, service: Service, *, timeout_s: float | None = None
    ) -> Call[RunningSettings]:
        """Return those settings of a service that change while it runs."""
        method, _ = wire.settings_methods(service)
        request = settings_pb2.GetSettingsRequest()
        return Call(method, request, value(RunningSettings), timeout_s=timeout_s)

    @operation
    def update_running_settings(
        self,
        service: Service,
        *,
        log_level: str | None = None,
        access_log: str | None = None,
        slow_call_ms: int | None = None,
        timeout_s: float | None = None,
    ) -> Call[RunningSettings]:
        """Change what is given until the service's next start. Raises InvalidArgument."""
        _, method = wire.settings_methods(service)
        request = build(
            settings_pb2.UpdateSettingsRequest,
            log_level=log_level,
            access_log=access_log,
            slow_call_ms=slow_call_ms,
        )
        return Call(method, request, value(RunningSettings), timeout_s=timeout_s)

    @operation
    def lease_status(self, *, timeout_s: float | None = None) -> Call[LeaseStatus]:
        """Return what groups were handed and have not done, and how the journal of leases is."""
        request = leases_pb2.GetLeaseStatusRequest()
        return Call(wire.LEASE_STATUS, request, _lease_status, timeout_s=timeout_s)

    @operation
    def traffic_in(self, *, timeout_s: float | None = None) -> Call[list[StoredTraffic]]:
        """Return what was stored since the writer's start, by topic. It costs little: rates come from two calls."""
        request = traffic_pb2.GetTrafficRequest()
        return Call(wire.TRAFFIC_IN, request, each(StoredTraffic, "stored"), timeout_s=timeout_s)

    @operation
    def traffic_out(self, *, timeout_s: float | None = None) -> Call[OutTraffic]:
        """Return what consumers were sent since the reader's start, and where groups are.

        However many ask, the reader looks where groups are at most so often that it takes a twentieth of a core.
        """
        request = traffic_pb2.GetTrafficRequest()
        return Call(wire.TRAFFIC_OUT, request, _out_traffic, timeout_s=timeout_s)

    @operation
    def retention(self, *, timeout_s: float | None = None) -> Call[RetentionReport]:
        """Return which files of the log are deleted when, and what holds them."""
        request = retention_pb2.GetRetentionRequest()
        return Call(wire.GET_RETENTION, request, _retention_report, timeout_s=timeout_s)

    @operation
    def delete_expired(
        self, older_than_ms: int | None = None, *, timeout_s: float = DELETE_TIMEOUT_S
    ) -> Call[RetentionReport]:
        """Delete the files of the log that are older than that, or than the retention, at once.

        Files that somebody needs and the newest file stay. A deletion that takes longer than a minute goes
        on, and the report has ``is_deleting``. A second call meanwhile is retried. Raises InvalidArgument
        without an age where retention is off.
        """
        request = build(retention_pb2.DeleteExpiredRequest, older_than_ms=older_than_ms)
        return Call(wire.DELETE_EXPIRED, request, _retention_report, timeout_s=timeout_s)


def _lease_status(answer: Any) -> LeaseStatus:
    groups = tuple(value_of(GroupLeases, each) for each in answer.groups)
    return value_of(LeaseStatus, answer, groups=groups)


def _out_traffic(answer: Any) -> OutTraffic:
    sent = tuple(value_of(SentTraffic, each) for each in answer.sent)
    lags = tuple(value_of(GroupLag, each) for each in answer.lags)
    return value_of(OutTraffic, answer, sent=sent, lags=lags)


def _retention_report(answer: Any) -> RetentionReport:
    files = tuple(value_of(RetainedFile, file) for file in answer.files)
    return value_of(RetentionReport, answer, files=files)
