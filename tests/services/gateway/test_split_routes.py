"""Split routes: sends go to the writer and receives to the reader, by the clients that honour it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from free_ports import free_address
from google.protobuf.duration_pb2 import Duration
from service_settings import gateway_settings, reader_settings, writer_settings

from penstock.v1 import (
    gateway_pb2,
    gateway_pb2_grpc,
    reader_pb2,
    reader_pb2_grpc,
    writer_pb2,
    writer_pb2_grpc,
)
from services.gateway.__main__ import serve as serve_gateway
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.format.record import decode_record

ACCESS_POINT = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="10.1.1.1", port=8081)])
TOPIC = v2.Resource(name="orders")
QUEUES = 2


class SplitBed:
    """All three ports with MessagingService, and what they call each other.

    The gateway is a port of the reader, or a service of its own.
    """

    def __init__(
        self,
        store: Path,
        stack: ExitStack,
        *,
        has_own_gateway: bool,
    ) -> None:
        self.addresses = {name: free_address() for name in ("writer", "reader", "gateway")}
        endpoints: dict[str, Any] = {
            f"{name}_endpoint": self.addresses[name] for name in ("writer", "reader")
        }
        calls = {f"{name}_address": self.addresses[name] for name in ("writer", "reader")}
        listen = self.addresses["gateway"]
        of_reader: dict[str, Any] = {}
        if has_own_gateway:
            settings = gateway_settings(listen=listen, **calls, **endpoints)
            stack.enter_context(BackgroundService(serve_gateway, settings))
        else:
            of_reader = {"gateway_listen": listen}
        for serve, service_settings in (
            (serve_writer, writer_settings(
                store, listen=self.addresses["writer"], reader_address=calls["reader_address"], **endpoints
            )),
            (serve_reader, reader_settings(
                store, listen=self.addresses["reader"], writer_address=calls["writer_address"],
                **of_reader, **endpoints,
            )),
        ):  # fmt: skip
            stack.enter_context(BackgroundService(serve, service_settings))
        self._channels = {
            name: stack.enter_context(grpc.insecure_channel(address))
            for name, address in self.addresses.items()
        }
        self.create("orders")

    def create(self, topic: str) -> None:
        writer_pb2_grpc.WriterStub(self._channels["writer"]).CreateTopic(
            writer_pb2.CreateTopicRequest(name=topic, queue_count=QUEUES), timeout=10
        )

    def call(self, place: str, method: str, request: Any, *, language: str = "PYTHON") -> Any:
        stub = service_pb2_grpc.MessagingServiceStub(self._channels[place])
        metadata = (("x-mq-client-id", f"host@{language}"), ("x-mq-language", language))
        return getattr(stub, method)(request, timeout=20, metadata=metadata)

    def clients(self, place: str) -> set[str]:
        stub = gateway_pb2_grpc.GatewayStub(self._channels[place])
        answer = stub.ListClients(gateway_pb2.ListClientsRequest(), timeout=10)
        return {client.client_id for client in answer.clients}

    def send(self, place: str, topic: str, body: bytes) -> service_pb2.SendMessageResponse:
        system = v2.SystemProperties(
            message_id="01" + body.hex(), message_type=v2.NORMAL, body_encoding=v2.IDENTITY
        )
        system.born_timestamp.FromMilliseconds(time.time_ns() // 1_000_000)
        message = v2.Message(topic=v2.Resource(name=topic), body=body, system_properties=system)
        answer = self.call(place, "SendMessage", service_pb2.SendMessageRequest(messages=[message]))
        assert isinstance(answer, service_pb2.SendMessageResponse)
        return answer

    def receive(self, place: str, topic: str, group: str, **changes: Any) -> list[v2.Message]:
        request = service_pb2.ReceiveMessageRequest(
            **{
                "group": v2.Resource(name=group),
                "message_queue": v2.MessageQueue(topic=v2.Resource(name=topic)),
                "batch_size": 8,
                "invisible_duration": Duration(seconds=30),
                "long_polling_timeout": Duration(seconds=10),
                **changes,
            }
        )
        answers = list(self.call(place, "ReceiveMessage", request))
        assert answers[0].status.code in (v2.OK, v2.MESSAGE_NOT_FOUND), answers
        return [each.message for each in answers if each.HasField("message")]

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of a topic's first queue, as a pull finds them."""
        stub = reader_pb2_grpc.ReaderStub(self._channels["reader"])
        pulled = stub.Pull(
            reader_pb2.PullRequest(topic=topic, max_messages=10, wait_ms=10_000), timeout=20
        )
        position, found = 0, []
        while position < len(pulled.records):
            record = decode_record(pulled.records, position)
            position += record.total_size
            found.append(bytes(record.body))
        return found


@pytest.fixture(
    name="split", scope="module", params=[False, True], ids=["of the reader", "of its own"]
)
def _split(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SplitBed]:
    store = tmp_path_factory.mktemp("split") / "store"
    with ExitStack() as stack:
        yield SplitBed(store, stack, has_own_gateway=request.param)


def route(split: SplitBed, place: str, language: str) -> list[tuple[int, int, int]]:
    request = service_pb2.QueryRouteRequest(topic=TOPIC, endpoints=ACCESS_POINT)
    answer = split.call(place, "QueryRoute", request, language=language)
    assert answer.status.code == v2.OK
    return [
        (queue.id, queue.permission, queue.broker.endpoints.addresses[0].port)
        for queue in answer.message_queues
    ]


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("language", ["PYTHON", "JAVA", "HTTP", "DOT_NET", "CPP"])
def test_clients_that_honour_permissions_write_to_the_writer_and_read_from_the_reader(
    split: SplitBed, language: str
) -> None:
    writer, reader = port(split.addresses["writer"]), port(split.addresses["reader"])

    assert route(split, "gateway", language) == [
        *((queue_id, v2.WRITE, writer) for queue_id in range(QUEUES)),
        *((queue_id, v2.READ, reader) for queue_id in range(QUEUES)),
    ]


@pytest.mark.parametrize("language", ["GO", "RUST", ""])
def test_others_stay_where_they_came_in(split: SplitBed, language: str) -> None:
    assert route(split, "gateway", language) == [
        (queue_id, v2.READ_WRITE, 8081) for queue_id in range(QUEUES)
    ]


@pytest.mark.parametrize("place", ["gateway", "writer", "reader"])
def test_an_assignment_is_at_the_reader_wherever_it_is_asked_for(
    split: SplitBed, place: str
) -> None:
    request = service_pb2.QueryAssignmentRequest(
        topic=TOPIC, group=v2.Resource(name="billing"), endpoints=ACCESS_POINT
    )
    [assignment] = split.call(place, "QueryAssignment", request).assignments

    queue = assignment.message_queue
    assert (queue.id, queue.permission) == (-1, v2.READ_WRITE)
    assert queue.broker.endpoints.addresses[0].port == port(split.addresses["reader"])


@pytest.mark.parametrize(
    ("sends", "receives"), [("writer", "reader"), ("reader", "writer"), ("gateway", "gateway")]
)
def test_every_service_serves_every_call(split: SplitBed, sends: str, receives: str) -> None:
    """A client that is at the wrong one is served too, by the other."""
    topic, group = f"trip-{sends}", f"trip-{sends}"
    split.create(topic)
    stored = split.send(sends, topic, b"one")
    assert (stored.status.code, stored.entries[0].offset) == (v2.OK, 0)
    [message] = split.receive(receives, topic, group)
    entry = service_pb2.AckMessageEntry(receipt_handle=message.system_properties.receipt_handle)
    request = service_pb2.AckMessageRequest(
        group=v2.Resource(name=group), topic=v2.Resource(name=topic), entries=[entry]
    )

    assert message.body == b"one"
    assert split.call(receives, "AckMessage", request).status.code == v2.OK
    again = split.call(receives, "AckMessage", request)
    assert again.status.code == v2.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("place", ["gateway", "reader"])
def test_a_dead_letter_by_the_handle_of_a_change_is_that_message(
    split: SplitBed, place: str
) -> None:
    """A real proxy stores the first record of the log instead, and the message is lost."""
    name = f"dead-{place}"
    split.create(name)
    for body in (b"first", b"second"):
        split.send(place, name, body)
    received: dict[bytes, v2.Message] = {}
    while len(received) < 2:
        received.update((each.body, each) for each in split.receive(place, name, name))
    resources = {"group": v2.Resource(name=name), "topic": v2.Resource(name=name)}
    changed = split.call(
        place,
        "ChangeInvisibleDuration",
        service_pb2.ChangeInvisibleDurationRequest(
            **resources,
            receipt_handle=received[b"second"].system_properties.receipt_handle,
            invisible_duration=Duration(seconds=60),
        ),
    )
    given_up = split.call(
        place,
        "ForwardMessageToDeadLetterQueue",
        service_pb2.ForwardMessageToDeadLetterQueueRequest(
            **resources, receipt_handle=changed.receipt_handle
        ),
    )

    assert (changed.status.code, given_up.status.code) == (v2.OK, v2.OK)
    assert split.bodies(f"%DLQ%{name}") == [b"second"]


def test_the_gateway_lists_the_clients_of_all(split: SplitBed) -> None:
    for place in ("writer", "reader"):
        split.call(place, "Heartbeat", service_pb2.HeartbeatRequest(), language=f"to-{place}")

    assert "host@to-writer" in split.clients("writer") - split.clients("reader")
    assert {"host@to-writer", "host@to-reader"} <= split.clients("gateway")


def test_without_endpoints_writer_and_reader_do_not_serve_these_clients(tmp_path: Path) -> None:
    with (
        BackgroundService(serve_writer, writer_settings(tmp_path / "store")) as writer,
        grpc.insecure_channel(writer.address) as channel,
    ):
        stub = service_pb2_grpc.MessagingServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Heartbeat(service_pb2.HeartbeatRequest(), timeout=20)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
