"""Callers on their own threads, and one that asks for what nobody can have."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from messaging_bed import ENDPOINTS, message, receive_request

from services.gateway.handle_calls import _AGAIN_SECONDS
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from storage.format.timers.recall_handle import RecallHandle

TRANSIENT = {
    v2.INTERNAL_SERVER_ERROR, v2.PROXY_TIMEOUT, v2.TOO_MANY_REQUESTS
}  # fmt: skip  # while a service is away
AWAY = {
    grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED
}  # fmt: skip
ENDLESS_MAX = 200
DAY_S = 86_400


class NotNow(Exception):
    """A good call that a bad one needs before it was refused: a service is away."""


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


class Misbehaving(Caller):
    """Asks for one bad thing after the other; ``codes`` counts those that were refused as they should be.

    ``topic`` takes normal messages alone; ``scratch`` takes all kinds, and what it holds is of no account.
    """

    def __init__(
        self, address: str, number: int, *, topic: v2.Resource, scratch: v2.Resource
    ) -> None:
        super().__init__(address, number)
        self.codes: Counter[str] = Counter()
        self._topic, self._scratch = topic, scratch
        self._group = v2.Resource(name=f"bad-{number}")
        kinds: dict[Callable[[grpc.Channel, Any], int], int] = {
            self._forged: v2.INVALID_RECEIPT_HANDLE,
            self._repeated: v2.INVALID_RECEIPT_HANDLE,
            self._expired: v2.INVALID_RECEIPT_HANDLE,
            self._foreign: v2.INVALID_RECEIPT_HANDLE,
            self._nowhere: v2.TOPIC_NOT_FOUND,
            self._no_group: v2.ILLEGAL_CONSUMER_GROUP,
            self._wrong_type: v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            self._wrong_filter: v2.ILLEGAL_FILTER_EXPRESSION,
            self._wrong_scheme: v2.ILLEGAL_ACCESS_POINT,
            self._too_large: v2.MESSAGE_BODY_TOO_LARGE,
            self._nobody: v2.CLIENT_ID_REQUIRED,
            self._garbage: v2.BAD_REQUEST,
            self._silence: v2.OK,
            self._endless: v2.OK,
            self._too_far: v2.ILLEGAL_DELIVERY_TIME,
            self._late_recall: v2.BAD_REQUEST,
            self._unknown_transaction: v2.INVALID_TRANSACTION_ID,
            self._ended_twice: v2.INVALID_TRANSACTION_ID,
        }
        self._wanted = kinds
        self._turns = itertools.cycle(self.dice.sample(list(kinds), len(kinds)))
        self._streams: list[Any] = []
        self._end = threading.Event()

    @property
    def kinds(self) -> set[str]:
        """What it asks for."""
        return {call.__name__ for call in self._wanted}

    def run(self) -> None:
        try:
            super().run()
        finally:
            self._end.set()

    def turn(self, channel: grpc.Channel, stub: Any) -> None:
        call = next(self._turns)
        try:
            code = call(channel, stub)
        except NotNow:
            return
        wanted = self._wanted[call]
        assert code == wanted or code in TRANSIENT, (call.__name__, code)
        if code == wanted:
            self.codes[call.__name__] += 1

    # ---- handles

    def _forged(self, _channel: grpc.Channel, stub: Any) -> int:
        request = service_pb2.ChangeInvisibleDurationRequest(
            group=self._group,
            topic=self._topic,
            receipt_handle="".join(self.dice.choices("Ab1", k=40)),
        )
        return int(stub.ChangeInvisibleDuration(request, **self.options()).status.code)

    def _repeated(self, _channel: grpc.Channel, stub: Any) -> int:
        handle = self._leased(stub)
        if self._acknowledge(stub, self._group, handle) != v2.OK:
            raise NotNow
        began = time.monotonic()
        code = self._acknowledge(stub, self._group, handle)
        if code == v2.OK and time.monotonic() - began >= _AGAIN_SECONDS:
            raise NotNow  # the gateway asked a reader that was killed again: it takes that for the first one
        return code

    def _expired(self, _channel: grpc.Channel, stub: Any) -> int:
        handle = self._leased(stub)
        request = service_pb2.ChangeInvisibleDurationRequest(
            group=self._group, topic=self._scratch, receipt_handle=handle,
            invisible_duration=Duration(seconds=0),
        )  # fmt: skip
        if stub.ChangeInvisibleDuration(request, **self.options()).status.code != v2.OK:
            raise NotNow
        self._leased(stub)  # it has come again, or another one whose time had come
        return self._acknowledge(stub, self._group, handle)

    def _foreign(self, _channel: grpc.Channel, stub: Any) -> int:
        return self._acknowledge(stub, v2.Resource(name="others"), self._leased(stub))

    def _leased(self, stub: Any) -> str:
        """Return the handle of a message of our own group."""
        self._send(stub, message(self._scratch))
        asked = receive_request(
            self._scratch, self._group, batch_size=1, long_polling_timeout=Duration(seconds=2)
        )
        for each in stub.ReceiveMessage(asked, **self.options()):
            if each.HasField("message"):
                return str(each.message.system_properties.receipt_handle)
        raise NotNow

    def _send(self, stub: Any, sent: v2.Message) -> Any:
        request = service_pb2.SendMessageRequest(messages=[sent])
        answer = stub.SendMessage(request, **self.options())
        if answer.status.code != v2.OK:
            assert answer.status.code in TRANSIENT, answer.status
            raise NotNow
        return answer.entries[0]

    def _acknowledge(self, stub: Any, group: v2.Resource, handle: str) -> int:
        entry = service_pb2.AckMessageEntry(message_id="01", receipt_handle=handle)
        request = service_pb2.AckMessageRequest(group=group, topic=self._scratch, entries=[entry])
        return int(stub.AckMessage(request, **self.options()).status.code)

    # ---- names, kinds, sizes

    def _nowhere(self, _channel: grpc.Channel, stub: Any) -> int:
        topic = v2.Resource(name=f"nowhere-{self.dice.random()}".replace(".", "-"))
        request = service_pb2.QueryRouteRequest(topic=topic, endpoints=ENDPOINTS)
        return int(stub.QueryRoute(request, **self.options()).status.code)

    def _no_group(self, _channel: grpc.Channel, stub: Any) -> int:
        request = receive_request(self._topic, v2.Resource(name=""))
        return int(next(stub.ReceiveMessage(request, **self.options())).status.code)

    def _wrong_type(self, _channel: grpc.Channel, stub: Any) -> int:
        wrong = message(self._topic, message_type=self.dice.choice([0, v2.FIFO, v2.LITE, 99]))
        request = service_pb2.SendMessageRequest(messages=[wrong])
        return int(stub.SendMessage(request, **self.options()).status.code)

    def _wrong_filter(self, _channel: grpc.Channel, stub: Any) -> int:
        wrong = v2.FilterExpression(type=v2.SQL, expression="price > AND")
        request = receive_request(self._topic, self._group, filter_expression=wrong)
        return int(next(stub.ReceiveMessage(request, **self.options())).status.code)

    def _wrong_scheme(self, _channel: grpc.Channel, stub: Any) -> int:
        wrong = v2.Endpoints(scheme=99, addresses=ENDPOINTS.addresses)  # type: ignore[arg-type]
        request = service_pb2.QueryRouteRequest(topic=self._topic, endpoints=wrong)
        return int(stub.QueryRoute(request, **self.options()).status.code)

    def _too_large(self, _channel: grpc.Channel, stub: Any) -> int:
        large = message(self._topic, bytes((4 << 20) + 1))
        request = service_pb2.SendMessageRequest(messages=[large])
        return int(stub.SendMessage(request, **self.options()).status.code)

    # ---- clients

    def _nobody(self, _channel: grpc.Channel, stub: Any) -> int:
        request = service_pb2.NotifyClientTerminationRequest(group=self._group)
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

    def _endless(self, _channel: grpc.Channel, stub: Any) -> int:
        """Leave a stream open of which nothing is read."""

        def nothing() -> Any:
            self._end.wait()
            yield from ()

        if len(self._streams) < ENDLESS_MAX:
            self._streams.append(stub.Telemetry(nothing(), metadata=self.metadata))
        return int(v2.OK)

    # ---- times and transactions

    def _too_far(self, _channel: grpc.Channel, stub: Any) -> int:
        at = Timestamp(seconds=int(time.time()) + 41 * DAY_S)
        far = message(self._scratch, message_type=v2.DELAY, delivery_timestamp=at)
        request = service_pb2.SendMessageRequest(messages=[far])
        return int(stub.SendMessage(request, **self.options()).status.code)

    def _late_recall(self, _channel: grpc.Channel, stub: Any) -> int:
        late = RecallHandle(self._scratch.name, "penstock", 1, "KEY").encode()
        request = service_pb2.RecallMessageRequest(topic=self._scratch, recall_handle=late)
        return int(stub.RecallMessage(request, **self.options()).status.code)

    def _unknown_transaction(self, _channel: grpc.Channel, stub: Any) -> int:
        return self._end_transaction(stub, "unknown", v2.COMMIT)

    def _ended_twice(self, _channel: grpc.Channel, stub: Any) -> int:
        half = self._send(stub, message(self._scratch, message_type=v2.TRANSACTION))
        if self._end_transaction(stub, half.transaction_id, v2.ROLLBACK) != v2.OK:
            raise NotNow
        again = self._end_transaction(stub, half.transaction_id, v2.ROLLBACK)
        assert again == v2.OK or again in TRANSIENT, again
        return self._end_transaction(stub, half.transaction_id, v2.COMMIT)

    def _end_transaction(self, stub: Any, transaction_id: str, resolution: int) -> int:
        request = service_pb2.EndTransactionRequest(
            topic=self._scratch, message_id=transaction_id, transaction_id=transaction_id,
            resolution=resolution,  # type: ignore[arg-type]
        )  # fmt: skip
        return int(stub.EndTransaction(request, **self.options()).status.code)
