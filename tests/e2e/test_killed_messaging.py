"""Gateway, reader and writer killed with -9 under clients of RocketMQ.

What was acknowledged does not come again, and what was stored is delivered until it is acknowledged. It takes a lease of
ten seconds, the shortest that the protocol has. ``KILLS`` says how often services are killed (``make kill-test``: 500 in all).
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from engine_store import records_on_disk
from google.protobuf.duration_pb2 import Duration
from messaging_bed import message, receive_request
from real_processes import Running, supervisor, until
from service_process import GatewayProcess

from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc

WITH_ITS_GATEWAY = ("reader", "writer")  # the gateway is a port of the reader
WITHOUT = ("gateway", "reader", "writer")
ROUNDS = max(1, int(os.environ.get("KILLS", "5")) // len(WITH_ITS_GATEWAY + WITHOUT))
TOPIC, GROUP = v2.Resource(name="orders"), v2.Resource(name="billing")
AHEAD_MAX = 300  # messages that consumers have to go; a busy machine is not behind for long
LEASE = Duration(seconds=10)
# While a service is away.
TRANSIENT = {v2.INTERNAL_SERVER_ERROR, v2.PROXY_TIMEOUT, v2.TOO_MANY_REQUESTS}
AWAY = {
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED
}  # fmt: skip


class Caller(threading.Thread):
    """Takes turns until it is told to stop; keeps what went wrong."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.dice = random.Random(number)
        self.stopping = threading.Event()
        self.problem: BaseException | None = None
        metadata = (("x-mq-client-id", f"client-{number}"), ("x-mq-language", "GO"))
        self.options: dict[str, Any] = {"timeout": 15, "metadata": metadata}

    def run(self) -> None:
        try:
            with grpc.insecure_channel(self.address) as channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                while not self.stopping.is_set():
                    try:
                        self.turn(stub)
                    except grpc.RpcError as error:
                        if error.code() not in AWAY:
                            raise
                        self.stopping.wait(0.05)
        except BaseException as error:  # noqa: BLE001  raised by the test
            self.problem = error

    def turn(self, stub: Any) -> None:
        raise NotImplementedError


class Producing(Caller):
    """Sends one message after the other; ``stored`` has the bodies that were answered with OK."""

    def __init__(self, address: str, number: int, acknowledged: set[bytes]) -> None:
        super().__init__(address, number)
        self.stored: set[bytes] = set()
        self.acknowledged = acknowledged
        self._count = 0

    def turn(self, stub: Any) -> None:
        self._count += 1
        body = b"%d" % self._count
        request = service_pb2.SendMessageRequest(messages=[message(TOPIC, body)])
        code = stub.SendMessage(request, **self.options).status.code
        assert code == v2.OK or code in TRANSIENT, code
        if code == v2.OK:
            self.stored.add(body)
        self.stopping.wait(0.005 if len(self.stored) < len(self.acknowledged) + AHEAD_MAX else 0.5)


class Consuming(Caller):
    """Receives and acknowledges most of it; the rest has to come again."""

    acknowledged: set[bytes]
    unknown: set[bytes]  # acknowledged, and no answer came: a service was killed
    guard = threading.Lock()

    def __init__(self, address: str, number: int, acknowledged: set[bytes]) -> None:
        super().__init__(address, number)
        self.acknowledged = acknowledged
        self.unknown = set()

    def turn(self, stub: Any) -> None:
        with self.guard:
            done = set(self.acknowledged)  # before the call: it returns nothing of these
        asked = receive_request(
            TOPIC, GROUP, invisible_duration=LEASE, long_polling_timeout=Duration(seconds=2)
        )
        answers = list(stub.ReceiveMessage(asked, **self.options))
        code = answers[0].status.code
        assert code in (v2.OK, v2.MESSAGE_NOT_FOUND) or code in TRANSIENT, code
        received = [each.message for each in answers if each.HasField("message")]
        again = [each.body for each in received if each.body in done]
        assert not again, f"acknowledged, and delivered again: {again}"
        for each in received:
            if self.dice.random() < 0.02:
                continue
            handle = each.system_properties.receipt_handle
            entry = service_pb2.AckMessageEntry(message_id="01", receipt_handle=handle)
            request = service_pb2.AckMessageRequest(group=GROUP, topic=TOPIC, entries=[entry])
            self.unknown.add(each.body)
            code = stub.AckMessage(request, **self.options).status.code
            assert code in (v2.OK, v2.INVALID_RECEIPT_HANDLE) or code in TRANSIENT, code
            if code not in TRANSIENT:
                self.unknown.discard(each.body)
            if code == v2.OK:
                with self.guard:
                    self.acknowledged.add(each.body)


def kill(serve: Running, service: str) -> None:
    """Kill a service and wait until it serves again."""
    times = len(serve.serving(service))
    os.kill(serve.serving(service)[-1][1], signal.SIGKILL)
    serve.wait_serving(service, times + 1)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [WITH_ITS_GATEWAY, WITHOUT], ids="-".join)
def test_clients_go_on_and_nothing_is_lost(tmp_path: Path, killed: tuple[str, ...]) -> None:
    acknowledged: set[bytes] = set()
    has_own = "gateway" in killed
    listen = "none" if has_own else "127.0.0.1:0"
    with (
        supervisor(tmp_path / "store", "--gateway-listen", listen) as serve,
        ExitStack() as stack,
    ):
        writer, _ = serve.wait_serving("writer")
        reader, _ = serve.wait_serving("reader")
        own = stack.enter_context(GatewayProcess(writer, reader)) if has_own else None
        address = serve.wait_serving("gateway")[0] if own is None else own.address
        with grpc.insecure_channel(writer) as channel:
            request = writer_pb2.CreateTopicRequest(name=TOPIC.name, queue_count=2)
            create = writer_pb2_grpc.WriterStub(channel).CreateTopic
            create(request, timeout=30, wait_for_ready=True)
        producer = Producing(address, 0, acknowledged)
        consumers = [Consuming(address, number, acknowledged) for number in (1, 2)]
        callers: list[Caller] = [producer, *consumers]
        for each in callers:
            each.start()

        def problems() -> list[BaseException]:
            return [each.problem for each in callers if each.problem]

        def go_on() -> None:
            """Wait until more is stored and delivered than now."""
            stored, delivered = len(producer.stored) + 10, len(acknowledged) + 10
            until(
                lambda: (
                    bool(problems())
                    or (len(producer.stored) > stored and len(acknowledged) > delivered)
                ),
                60,
            )
            assert not problems()

        go_on()
        for _ in range(ROUNDS):
            for service in killed:
                if own is not None and service == "gateway":
                    own.kill()
                    own.start()
                else:
                    kill(serve, service)
                go_on()
        producer.stopping.set()
        producer.join(20)

        def undelivered() -> set[bytes]:
            return producer.stored - acknowledged - consumers[0].unknown - consumers[1].unknown

        with suppress(AssertionError):  # the next lines say it better
            until(lambda: bool(problems()) or not undelivered(), 60)
        assert not problems()
        assert not undelivered(), "stored, and never delivered"
        for each in consumers:
            assert len(each.unknown) <= len(killed) * ROUNDS
        for each in callers:
            each.stopping.set()
        for each in callers:
            each.join(20)
        assert not problems()
    records = records_on_disk(tmp_path / "store")
    bodies = Counter(each.body for each in records if each.topic == TOPIC.name)
    assert not [body for body, count in bodies.items() if count > 1], "sent once, and stored again"
