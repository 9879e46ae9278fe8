"""A gateway that stops keeps nobody waiting: polls are answered, streams end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from messaging_bed import CLIENT
from service_settings import gateway_settings

from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService


def test_a_stop_does_not_wait_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    """Its stream is full: what it is told waits for it, and so would the end of its call."""
    topics = [v2.Resource(name=f"t{number:03}" + "x" * 200) for number in range(100)]
    settings = service_pb2.TelemetryCommand(
        settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=topics))
    )
    gateway = BackgroundService(serve_gateway, gateway_settings(drain_grace_seconds=30))
    with gateway, grpc.insecure_channel(gateway.address) as channel:
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
        said = threading.Semaphore(0)

        def commands() -> Iterator[service_pb2.TelemetryCommand]:
            while True:
                said.release()
                yield settings

        stream = stub.Telemetry(commands(), metadata=CLIENT, timeout=60)
        assert next(stream).status.code == v2.OK
        while said.acquire(timeout=2):  # until the gateway takes no more
            pass
        began = time.monotonic()
        gateway.stop(60)
        took = time.monotonic() - began
        stream.cancel()

    assert took < 15
