"""How a client reaches the three services: channel settings, health names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from penstock.addresses import Service

HEALTH_PATH: Final = "/grpc.health.v1.Health/Check"
HEALTH_NAMES: Final[Mapping[Service, str]] = {
    "writer": "penstock.v1.Writer",
    "reader": "penstock.v1.Reader",
    "indexer": "penstock.v1.Indexer",
}
READY_POLL_S: Final = 0.05
QUEUE_COUNT_KEPT_S: Final = 30.0
NOT_CONNECTED: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)

CHANNEL_OPTIONS: Final[tuple[tuple[str, int], ...]] = (
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", -1),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def health_request(service: Service) -> bytes:
    """Return the serialized health request for a service."""
    request = health_pb2.HealthCheckRequest(service=HEALTH_NAMES[service])
    return bytes(request.SerializeToString())


def is_serving(answer: bytes) -> bool:
    """Whether a serialized health answer says SERVING."""
    status = health_pb2.HealthCheckResponse.FromString(answer).status
    return bool(status == health_pb2.HealthCheckResponse.SERVING)
