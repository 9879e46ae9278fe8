"""A gateway that stops keeps nobody waiting: polls are answered, streams end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from fake_leases import FakeLeases, serve_fake_reader
from gateway_bed import CLIENT
from google.protobuf.duration_pb2 import Duration
from real_processes import until
from service_settings import gateway_settings, reader_settings

from penstock.v1 import leases_pb2
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.poll_lines import PollLines
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService


class SilentLeases(FakeLeases):
    """Lets every receive wait."""

    async def receive(self, request: leases_pb2.ReceiveRequest, _context: Any) -> Any:
        self.asked.append(request)
        await asyncio.sleep(60)


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


def test_polls_and_streams_end_at_once_when_the_gateway_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = SilentLeases()
    arrived: list[Any] = []
    ask = PollLines.ask

    async def noted(*arguments: Any) -> Any:
        arrived.append(arguments)
        return await ask(*arguments)

    monkeypatch.setattr(PollLines, "ask", noted)

    async def fake(settings: Any, stop: asyncio.Event, ready: Callable[[str], None]) -> None:
        await serve_fake_reader(leases, settings, stop, ready)

    request = service_pb2.ReceiveMessageRequest(
        group=v2.Resource(name="g"),
        message_queue=v2.MessageQueue(topic=v2.Resource(name="t")),
        invisible_duration=Duration(seconds=15),
        long_polling_timeout=Duration(seconds=30),
    )
    polled: list[list[Any]] = []
    listening = threading.Event()
    ended: list[Any] = []
    with BackgroundService(fake, reader_settings(tmp_path, drain_grace_seconds=0.1)) as reader:
        settings = gateway_settings(reader_address=reader.address, drain_grace_seconds=30)
        gateway = BackgroundService(serve_gateway, settings)
        with gateway, grpc.insecure_channel(gateway.address) as channel:
            stub = service_pb2_grpc.MessagingServiceStub(channel)

            def poll() -> None:
                polled.append(list(stub.ReceiveMessage(request, metadata=CLIENT, timeout=40)))

            def listen() -> None:
                stream = stub.Telemetry(iter(threading.Event().wait, True), metadata=CLIENT)
                stream.initial_metadata()
                listening.set()
                ended.append((list(stream), stream.code()))

            threads = [threading.Thread(target=poll) for _ in range(20)]
            threads.append(threading.Thread(target=listen))
            for thread in threads:
                thread.start()
            until(
                lambda: listening.is_set() and len(arrived) == 20 and len(leases.asked) == 16
            )  # others wait in the gateway
            began = time.monotonic()
            gateway.stop()
            took = time.monotonic() - began
            for thread in threads:
                thread.join(60)

    assert took < 25  # and not until the end of what waits
    assert [answers[0].status.code for answers in polled] == [v2.MESSAGE_NOT_FOUND] * 20
    assert ended == [([], grpc.StatusCode.OK)]  # after another status, Rust's client reads for ever
