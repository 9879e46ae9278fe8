"""Calls about the services themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from grpc_health.v1 import health_pb2

from penstock import wire
from penstock.addresses import Service
from penstock.calls.call import Call
from penstock.group_values import GroupLeases, LeaseStatus
from penstock.requests import build, value_of
from penstock.traffic_values import GroupLag, OutTraffic, SentTraffic, StoredTraffic
from penstock.v1 import (
    indexer_pb2,
    leases_pb2,
    reader_pb2,
    settings_pb2,
    traffic_pb2,
    writer_pb2,
)
from penstock.values import IndexerStatus, ReaderStatus, RunningSettings, WriterStatus
from penstock.wire import Method

T = TypeVar("T")

HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"
HEALTH_NAMES: Final[Mapping[Service, str]] = {
    "writer": "penstock.v1.Writer",
    "reader": "penstock.v1.Reader",
    "indexer": "penstock.v1.Indexer",
}


def health(service: Service) -> Call[bool]:
    """Ask whether a service reports SERVING."""
    request, response = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    return Call(
        Method(service, HEALTH_PATH, request.SerializeToString, response.FromString),
        request(service=HEALTH_NAMES[service]),
        lambda answer: bool(answer.status == response.SERVING),
    )


def writer() -> Call[WriterStatus]:
    """Ask for the writer's positions."""
    return Call(wire.WRITER_STATUS, writer_pb2.GetWriterStatusRequest(), _plain(WriterStatus))


def reader() -> Call[ReaderStatus]:
    """Ask what the reader sees."""
    return Call(wire.READER_STATUS, reader_pb2.GetReaderStatusRequest(), _plain(ReaderStatus))


def running_settings(service: Service) -> Call[RunningSettings]:
    """Ask what a service logs."""
    method, _ = wire.settings_methods(service)
    return Call(method, settings_pb2.GetSettingsRequest(), _plain(RunningSettings))


def update_running_settings(
    service: Service, *, log_level: str | None, access_log: str | None, slow_call_ms: int | None
) -> Call[RunningSettings]:
    """Set what is given; doing so twice sets the same."""
    _, method = wire.settings_methods(service)
    request = build(
        settings_pb2.UpdateSettingsRequest,
        log_level=log_level,
        access_log=access_log,
        slow_call_ms=slow_call_ms,
    )
    return Call(method, request, _plain(RunningSettings))


def leases() -> Call[LeaseStatus]:
    """Ask what is handed out and not done, by group."""

    def interpret(answer: leases_pb2.LeaseStatus) -> LeaseStatus:
        groups = tuple(value_of(GroupLeases, each) for each in answer.groups)
        return value_of(LeaseStatus, answer, groups=groups)

    return Call(wire.LEASE_STATUS, leases_pb2.GetLeaseStatusRequest(), interpret)


def traffic_in() -> Call[list[StoredTraffic]]:
    """Ask the writer what was stored, by topic."""
    kind = _plain(StoredTraffic)
    return Call(
        wire.TRAFFIC_IN,
        traffic_pb2.GetTrafficRequest(),
        lambda answer: list(map(kind, answer.stored)),
    )


def traffic_out() -> Call[OutTraffic]:
    """Ask the reader what consumers were sent, and where groups are."""
    sent, lag = _plain(SentTraffic), _plain(GroupLag)
    return Call(
        wire.TRAFFIC_OUT,
        traffic_pb2.GetTrafficRequest(),
        lambda answer: OutTraffic(
            sent=tuple(map(sent, answer.sent)),
            lags=tuple(map(lag, answer.lags)),
            lags_at_ms=answer.lags_at_ms,
        ),
    )


def indexer() -> Call[IndexerStatus]:
    """Ask how far the index is."""
    return Call(wire.INDEXER_STATUS, indexer_pb2.GetIndexerStatusRequest(), _plain(IndexerStatus))


def wait_indexed(commit_offset: int) -> Call[IndexerStatus]:
    """Wait until the index has every record before the commit offset."""
    request = build(indexer_pb2.WaitIndexedRequest, commit_offset=commit_offset)
    return Call(wire.WAIT_INDEXED, request, _plain(IndexerStatus))


def _plain(kind: type[T]) -> Callable[[Any], T]:
    return partial(value_of, kind)
