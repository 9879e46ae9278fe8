"""Sessions that never end: so many are served, the next one is told to come later, and other calls go on."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from real_processes import until
from service_settings import gateway_settings

from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService

MOST = 3
SETTINGS = service_pb2.TelemetryCommand(
    settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
)


class OpenStream:
    """A client's Telemetry stream that stays open."""

    def __init__(self, stub: Any, number: int) -> None:
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        metadata = (("x-mq-client-id", f"client-{number}"),)
        self._answers = stub.Telemetry(
            iter(self._commands.get, None), metadata=metadata, timeout=60
        )

    def settings(self) -> Any:
        """Return the status that the settings are answered with, None at the stream's end."""
        self._commands.put(SETTINGS)
        answer = next(self._answers, None)
        return None if answer is None else answer.status.code

    def end(self) -> None:
        self._commands.put(None)
        for _ in self._answers:
            pass


@pytest.fixture(name="stub", params=[{"sessions_max": MOST}, {"concurrent_calls_max": MOST * 2}])
def _stub(request: pytest.FixtureRequest) -> Iterator[Any]:
    settings = gateway_settings(**request.param)
    with (
        BackgroundService(serve_gateway, settings) as gateway,
        grpc.insecure_channel(gateway.address) as channel,
    ):
        yield service_pb2_grpc.MessagingServiceStub(channel)


def test_a_session_too_many_is_refused_and_the_others_go_on(stub: Any) -> None:
    streams = [OpenStream(stub, number) for number in range(MOST)]
    assert [stream.settings() for stream in streams] == [v2.OK] * MOST
    refused = OpenStream(stub, MOST)
    assert (refused.settings(), refused.settings()) == (v2.TOO_MANY_REQUESTS, None)

    assert [stream.settings() for stream in streams] == [v2.OK] * MOST
    heartbeat = stub.Heartbeat(
        service_pb2.HeartbeatRequest(), metadata=(("x-mq-client-id", "another"),), timeout=20
    )
    assert heartbeat.status.code == v2.OK
    for stream in streams:
        stream.end()


def test_a_session_that_ended_makes_room(stub: Any) -> None:
    streams = [OpenStream(stub, number) for number in range(MOST)]
    assert [stream.settings() for stream in streams] == [v2.OK] * MOST
    streams.pop().end()
    until(lambda: OpenStream(stub, MOST).settings() == v2.OK)
    for stream in streams:
        stream.end()
