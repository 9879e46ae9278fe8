"""A service's health, and answers about the services themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from grpc_health.v1 import health_pb2

from penstock import wire
from penstock.addresses import Service
from penstock.calls.call import Call
from penstock.group_values import GroupLeases, LeaseStatus
from penstock.requests import value_of
from penstock.traffic_values import GroupLag, OutTraffic, SentTraffic, StoredTraffic
from penstock.v1 import reader_pb2
from penstock.values import ReaderStatus, RetainedFile, RetentionReport
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


def reader() -> Call[ReaderStatus]:
    """Ask what the reader sees."""
    return Call(wire.READER_STATUS, reader_pb2.GetReaderStatusRequest(), plain(ReaderStatus))


def plain(kind: type[T]) -> Callable[[Any], T]:
    """Return a reader of answers whose fields are the value's fields, name by name."""
    return partial(value_of, kind)


def lease_status_of(answer: Any) -> LeaseStatus:
    """Return what is handed out and not done, by group."""
    groups = tuple(value_of(GroupLeases, each) for each in answer.groups)
    return value_of(LeaseStatus, answer, groups=groups)


def stored_traffic_of(answer: Any) -> list[StoredTraffic]:
    """Return what was stored, by topic."""
    return [value_of(StoredTraffic, each) for each in answer.stored]


def out_traffic_of(answer: Any) -> OutTraffic:
    """Return what consumers were sent, and where groups are."""
    sent = tuple(value_of(SentTraffic, each) for each in answer.sent)
    lags = tuple(value_of(GroupLag, each) for each in answer.lags)
    return value_of(OutTraffic, answer, sent=sent, lags=lags)


def retention_report_of(answer: Any) -> RetentionReport:
    """Return what is deleted when, and what holds it."""
    files = tuple(value_of(RetainedFile, file) for file in answer.files)
    return value_of(RetentionReport, answer, files=files)
