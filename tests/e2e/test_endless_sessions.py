"""Thousands of sessions that are opened, never read and never ended: as many are held, and nobody else suffers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from messaging_bed import message
from raw_http2 import DATA, RawConnection, call_headers, frame, message_head
from real_processes import SMALL_STORE, Running, one_service, until
from steps_to_try import ALL_STEPS

from penstock import Client
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc

SESSIONS = 10_000 if ALL_STEPS else 2_000  # half of the calls that the gateway takes
OF_A_CONNECTION = 500  # at once: of more calls that wait gRPC cancels some
MEMORY_MAX = SESSIONS * 64 << 10
OPENING_S = 90.0  # calls are answered in the order in which they come
PATIENCE_S = 10.0
TELEMETRY = "/apache.rocketmq.v2.MessagingService/Telemetry"
SETTINGS = service_pb2.TelemetryCommand(
    settings=v2.Settings(
        client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name="t")])
    )
)


def memory_bytes(running: Running) -> int:
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def open_sessions(address: str, stack: ExitStack) -> Iterator[None]:
    """Open so many streams, each with a client and settings of its own; nothing is ever read of them.

    Yields after each connection: gRPC gives up calls that it has not begun within 30 s.
    """
    data = SETTINGS.SerializeToString()
    for first in range(0, SESSIONS, OF_A_CONNECTION):
        connection = stack.enter_context(RawConnection(address, TELEMETRY))
        frames = []
        for number in range(first, first + OF_A_CONNECTION):
            headers = call_headers(TELEMETRY, x_mq_client_id=f"endless-{number}")
            stream, head = connection.begin_call(headers)
            frames += [head, frame(DATA, message_head(len(data)) + data, stream=stream)]
        assert connection.send(b"".join(frames), 30)
        connection.stay()
        yield


@pytest.fixture(name="gateway")
def _gateway(tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        writer = stack.enter_context(one_service("writer", tmp_path / "store", *SMALL_STORE))
        address = writer.wait_serving("writer")[0]
        with Client(writer=address) as client:
            client.wait_ready(30, services=["writer"])
            client.create_topic("t", queues=1, attributes={"message.type": "NORMAL"})
        yield stack.enter_context(
            Running(
                "services.gateway", "--listen", "127.0.0.1:0", "--writer-address", address,
                "--access-log", "none", "--concurrent-calls-max", str(2 * SESSIONS),
            )
        )  # fmt: skip


def test_sessions_that_never_end_are_bounded_and_stop_nobody(gateway: Running) -> None:
    address = gateway.wait_serving("gateway")[0]
    client = (("x-mq-client-id", "honest"),)
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(address))
        stub: Any = service_pb2_grpc.MessagingServiceStub(channel)

        def session() -> int:
            answers = stub.Telemetry(iter([SETTINGS]), metadata=client, timeout=OPENING_S)
            return int(next(answers).status.code)

        def send() -> float:
            began = time.monotonic()
            request = service_pb2.SendMessageRequest(messages=[message(v2.Resource(name="t"))])
            answer = stub.SendMessage(request, metadata=client, timeout=PATIENCE_S)
            assert answer.status.code == v2.OK
            return time.monotonic() - began

        assert session() == v2.OK
        send()
        before = memory_bytes(gateway)
        opened = [session() for _ in open_sessions(address, stack)]
        assert opened[:-1] == [v2.OK] * (SESSIONS // OF_A_CONNECTION - 1)
        until(lambda: session() == v2.TOO_MANY_REQUESTS, OPENING_S)
        assert max(send() for _ in range(20)) < PATIENCE_S
        grown = memory_bytes(gateway) - before
        assert grown < MEMORY_MAX
        assert gateway.stop() == 0
