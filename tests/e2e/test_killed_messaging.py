"""Gateway, reader and writer killed with -9 under clients of RocketMQ, good ones and such as no one should write.

What was acknowledged does not come again, what was stored is delivered until it is acknowledged, and whoever asks for
nonsense gets a documented status. It takes a lease of ten seconds, the shortest that the protocol has. ``KILLS`` says how often
each service is killed (``make kill-test``: 500 in all).
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from engine_store import records_on_disk
from google.protobuf.duration_pb2 import Duration
from messaging_bed import ENDPOINTS, message, receive_request
from real_processes import Running, supervisor, until

from penstock.v1 import writer_pb2, writer_pb2_grpc
from services.rocketmq.v2 import definition_pb2 as v2
from services.rocketmq.v2 import service_pb2, service_pb2_grpc

ROUNDS = max(1, int(os.environ.get("KILLS", "3")) // 3)
SERVICES = ("gateway", "reader", "writer")
TOPIC, GROUP = v2.Resource(name="orders"), v2.Resource(name="billing")
LEASE = Duration(seconds=10)
TRANSIENT = {
    v2.INTERNAL_SERVER_ERROR, v2.PROXY_TIMEOUT, v2.TOO_MANY_REQUESTS
}  # fmt: skip  # while a service is away
AWAY = {
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED
}  # fmt: skip


class Caller(threading.Thread):
    """Takes turns until it is told to stop; keeps what went wrong."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.metadata = (("x-mq-client-id", f"client-{number}"), ("x-mq-language", "GO"))
        self.dice = random.Random(number)
        self.stopping = threading.Event()
        self.problem: BaseException | None = None

    def run(self) -> None:
        try:
            with grpc.insecure_channel(self.address) as channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                while not self.stopping.is_set():
                    try:
                        self.turn(channel, stub)
                    except grpc.RpcError as error:
                        if error.code() not in AWAY:  # type: ignore[attr-defined]
                            raise
                        self.stopping.wait(0.05)
        except BaseException as error:  # noqa: BLE001  raised by the test
            self.problem = error

    def turn(self, channel: grpc.Channel, stub: Any) -> None:
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        return {"timeout": 15, "metadata": self.metadata}


class Producing(Caller):
    """Sends one message after the other; ``stored`` has the bodies that were answered with OK."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(address, number)
        self.stored: set[bytes] = set()
        self._count = 0

    def turn(self, _channel: grpc.Channel, stub: Any) -> None:
        self._count += 1
        body = b"%d" % self._count
        request = service_pb2.SendMessageRequest(messages=[message(TOPIC, body)])
        code = stub.SendMessage(request, **self.options()).status.code
        assert code == v2.OK or code in TRANSIENT, code
        if code == v2.OK:
            self.stored.add(body)
        self.stopping.wait(0.005)


class Consuming(Caller):
    """Receives and acknowledges most of it; the rest has to come again."""

    acknowledged: set[bytes]
    guard = threading.Lock()

    def __init__(self, address: str, number: int, acknowledged: set[bytes]) -> None:
        super().__init__(address, number)
        self.acknowledged = acknowledged

    def turn(self, _channel: grpc.Channel, stub: Any) -> None:
        with self.guard:
            done = set(self.acknowledged)  # before the call: it returns nothing of these
        asked = receive_request(
            TOPIC, GROUP, invisible_duration=LEASE, long_polling_timeout=Duration(seconds=2)
        )
        answers = list(stub.ReceiveMessage(asked, **self.options()))
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
            code = stub.AckMessage(request, **self.options()).status.code
            assert code in (v2.OK, v2.INVALID_RECEIPT_HANDLE) or code in TRANSIENT, code
            if code == v2.OK:
                with self.guard:
                    self.acknowledged.add(each.body)


class Misbehaving(Caller):
    """Asks for what nobody can have; ``codes`` counts the answers."""

    def __init__(self, address: str, number: int) -> None:
        super().__init__(address, number)
        self.codes: Counter[str] = Counter()

    def turn(self, channel: grpc.Channel, stub: Any) -> None:
        kinds: list[tuple[Callable[[grpc.Channel, Any], int], int]] = [
            (self._forged, v2.INVALID_RECEIPT_HANDLE),
            (self._nowhere, v2.TOPIC_NOT_FOUND),
            (self._wrong_type, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
            (self._wrong_filter, v2.ILLEGAL_FILTER_EXPRESSION),
            (self._too_large, v2.MESSAGE_BODY_TOO_LARGE),
            (self._nobody, v2.CLIENT_ID_REQUIRED),
            (self._garbage, v2.BAD_REQUEST),
            (self._silence, v2.OK),
        ]
        call, wanted = self.dice.choice(kinds)
        code = call(channel, stub)
        assert code == wanted or code in TRANSIENT, (call.__name__, code)
        if code == wanted:
            self.codes[call.__name__] += 1

    def _forged(self, _channel: grpc.Channel, stub: Any) -> int:
        request = service_pb2.ChangeInvisibleDurationRequest(
            group=GROUP, topic=TOPIC, receipt_handle="".join(self.dice.choices("Ab1", k=40))
        )
        return int(stub.ChangeInvisibleDuration(request, **self.options()).status.code)

    def _nowhere(self, _channel: grpc.Channel, stub: Any) -> int:
        topic = v2.Resource(name=f"nowhere-{self.dice.random()}".replace(".", "-"))
        request = service_pb2.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)
        return int(stub.QueryRoute(request, **self.options()).status.code)

    def _wrong_type(self, _channel: grpc.Channel, stub: Any) -> int:
        wrong = message(TOPIC, message_type=self.dice.choice([0, v2.FIFO, v2.LITE, 99]))
        request = service_pb2.SendMessageRequest(messages=[wrong])
        return int(stub.SendMessage(request, **self.options()).status.code)

    def _wrong_filter(self, _channel: grpc.Channel, stub: Any) -> int:
        wrong = v2.FilterExpression(type=v2.SQL, expression="price > AND")
        request = receive_request(TOPIC, v2.Resource(name="others"), filter_expression=wrong)
        return int(next(stub.ReceiveMessage(request, **self.options())).status.code)

    def _too_large(self, _channel: grpc.Channel, stub: Any) -> int:
        request = service_pb2.SendMessageRequest(messages=[message(TOPIC, bytes((4 << 20) + 1))])
        return int(stub.SendMessage(request, **self.options()).status.code)

    def _nobody(self, _channel: grpc.Channel, stub: Any) -> int:
        request = service_pb2.NotifyClientTerminationRequest(group=GROUP)
        return int(stub.NotifyClientTermination(request, timeout=15).status.code)

    def _garbage(self, channel: grpc.Channel, _stub: Any) -> int:
        raw = channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")
        try:
            next(raw(iter([b"\xff" + self.dice.randbytes(100)]), **self.options()))
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.INVALID_ARGUMENT:  # type: ignore[attr-defined]
                return int(v2.BAD_REQUEST)
            raise
        raise AssertionError("garbage was answered")

    def _silence(self, _channel: grpc.Channel, stub: Any) -> int:
        end = threading.Event()

        def nothing() -> Any:
            end.wait(0.2)
            yield from ()

        stream = stub.Telemetry(nothing(), **self.options())
        assert list(stream) == []
        end.set()
        return int(v2.OK)


def kill(serve: Running, service: str) -> None:
    """Kill a service and wait until it serves again."""
    times = len(serve.serving(service))
    os.kill(serve.serving(service)[-1][1], signal.SIGKILL)
    serve.wait_serving(service, times + 1)


@pytest.mark.slow
def test_clients_go_on_and_nothing_is_lost(tmp_path: Path) -> None:
    acknowledged: set[bytes] = set()
    with supervisor(tmp_path / "store", "--gateway-listen", "127.0.0.1:0") as serve:
        writer, _ = serve.wait_serving("writer")
        serve.wait_serving("reader")
        address, _ = serve.wait_serving("gateway")
        with grpc.insecure_channel(writer) as channel:
            writer_pb2_grpc.WriterStub(channel).CreateTopic(
                writer_pb2.CreateTopicRequest(name=TOPIC.name, queue_count=2),
                timeout=30, wait_for_ready=True,
            )  # fmt: skip
        producer = Producing(address, 0)
        consumers = [Consuming(address, number, acknowledged) for number in (1, 2)]
        others = [Misbehaving(address, number) for number in (3, 4)]
        callers: list[Caller] = [producer, *consumers, *others]
        for each in callers:
            each.start()

        def problems() -> list[BaseException]:
            return [each.problem for each in callers if each.problem]

        def go_on() -> None:
            """Wait until more is stored, delivered and refused than now."""
            stored, delivered = len(producer.stored), len(acknowledged)
            refused = [each.codes.total() for each in others]
            until(
                lambda: (
                    bool(problems())
                    or (
                        len(producer.stored) > stored + 10
                        and len(acknowledged) > delivered + 10
                        and all(e.codes.total() > r for e, r in zip(others, refused, strict=True))
                    )
                ),
                60,
            )
            assert not problems()

        go_on()
        for _ in range(ROUNDS):
            for service in SERVICES:
                kill(serve, service)
                go_on()
        producer.stopping.set()
        producer.join(20)
        with suppress(AssertionError):  # the next line says it better
            until(lambda: bool(problems()) or producer.stored <= acknowledged, 60)
        assert not problems()
        assert not producer.stored - acknowledged, "stored, and never delivered"
        for each in callers:
            each.stopping.set()
        for each in callers:
            each.join(20)
        assert not problems()
    bodies = Counter(record.body for record in records_on_disk(tmp_path / "store"))
    assert not [body for body, count in bodies.items() if count > 1], "sent once, and stored again"
