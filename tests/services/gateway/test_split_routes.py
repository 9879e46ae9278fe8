"""Split routes: sends go to the writer and receives to the reader, by the clients that honour it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from messaging_bed import MessagingBed
from service_settings import writer_settings

from penstock.v1 import (
    gateway_pb2,
    gateway_pb2_grpc,
)
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.testing import BackgroundService
from services.writer.__main__ import serve as serve_writer

ACCESS_POINT = v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="10.1.1.1", port=8081)])
TOPIC = v2.Resource(name="orders")
QUEUES = 2


@pytest.fixture(
    name="split", scope="module", params=[False, True], ids=["of the reader", "of its own"]
)
def _split(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MessagingBed]:
    store = tmp_path_factory.mktemp("split") / "store"
    with ExitStack() as stack:
        split = MessagingBed(store, stack, has_own_gateway=request.param, splits_routes=True)
        split.create("orders", QUEUES)
        yield split


def of_language(language: str) -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", f"host@{language}"), ("x-mq-language", language))


def clients(split: MessagingBed, place: str) -> set[str]:
    stub = gateway_pb2_grpc.GatewayStub(split.channels[place])
    answer = stub.ListClients(gateway_pb2.ListClientsRequest(), timeout=10)
    return {client.client_id for client in answer.clients}


def route(split: MessagingBed, place: str, language: str) -> list[tuple[int, int, int]]:
    request = service_pb2.QueryRouteRequest(topic=TOPIC, endpoints=ACCESS_POINT)
    answer = split.call("QueryRoute", request, of_language(language), place)
    assert answer.status.code == v2.OK
    return [
        (queue.id, queue.permission, queue.broker.endpoints.addresses[0].port)
        for queue in answer.message_queues
    ]


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


@pytest.mark.parametrize("language", ["PYTHON", "JAVA", "HTTP", "DOT_NET", "CPP"])
def test_clients_that_honour_permissions_write_to_the_writer_and_read_from_the_reader(
    split: MessagingBed, language: str
) -> None:
    writer, reader = port(split.addresses["writer"]), port(split.addresses["reader"])

    assert route(split, "gateway", language) == [
        *((queue_id, v2.WRITE, writer) for queue_id in range(QUEUES)),
        *((queue_id, v2.READ, reader) for queue_id in range(QUEUES)),
    ]


@pytest.mark.parametrize("language", ["GO", "RUST", ""])
def test_others_stay_where_they_came_in(split: MessagingBed, language: str) -> None:
    assert route(split, "gateway", language) == [
        (queue_id, v2.READ_WRITE, 8081) for queue_id in range(QUEUES)
    ]


@pytest.mark.parametrize("place", ["gateway", "writer", "reader"])
def test_an_assignment_is_at_the_reader_wherever_it_is_asked_for(
    split: MessagingBed, place: str
) -> None:
    request = service_pb2.QueryAssignmentRequest(
        topic=TOPIC, group=v2.Resource(name="billing"), endpoints=ACCESS_POINT
    )
    [assignment] = split.call("QueryAssignment", request, at=place).assignments

    queue = assignment.message_queue
    assert (queue.id, queue.permission) == (-1, v2.READ_WRITE)
    assert queue.broker.endpoints.addresses[0].port == port(split.addresses["reader"])


@pytest.mark.parametrize(
    ("sends", "receives"), [("writer", "reader"), ("reader", "writer"), ("gateway", "gateway")]
)
def test_every_service_serves_every_call(split: MessagingBed, sends: str, receives: str) -> None:
    """A client that is at the wrong one is served too, by the other."""
    topic, group = split.create(f"trip-{sends}", QUEUES), v2.Resource(name=f"trip-{sends}")
    assert split.send(topic, b"one", at=sends).code == v2.OK
    [received] = split.receive(topic, group, at=receives)
    handle = received.system_properties.receipt_handle

    assert received.body == b"one"
    assert split.acknowledge(topic, group, handle, at=receives) == v2.OK
    assert split.acknowledge(topic, group, handle, at=receives) == v2.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize("place", ["gateway", "reader"])
def test_a_dead_letter_by_the_handle_of_a_change_is_that_message(
    split: MessagingBed, place: str
) -> None:
    """A real proxy stores the first record of the log instead, and the message is lost."""
    topic, group = split.create(f"dead-{place}", QUEUES), v2.Resource(name=f"dead-{place}")
    for body in (b"first", b"second"):
        split.send(topic, body, at=place)
    handles: dict[bytes, str] = {}
    while len(handles) < 2:
        for each in split.receive(topic, group, at=place):
            handles[each.body] = each.system_properties.receipt_handle
    assert split.change(topic, group, handles[b"second"], 60, at=place) == v2.OK
    assert split.give_up(topic, group, handles[b"second"], at=place) == v2.OK
    dead = split.client.pull(f"%DLQ%{group.name}", 0, 0, wait_ms=10_000).records
    assert [record.body for record in dead] == [b"second"]


def test_the_gateway_lists_the_clients_of_all(split: MessagingBed) -> None:
    for place in ("writer", "reader"):
        split.call("Heartbeat", service_pb2.HeartbeatRequest(), of_language(f"to-{place}"), place)

    assert "host@to-writer" in clients(split, "writer") - clients(split, "reader")
    assert {"host@to-writer", "host@to-reader"} <= clients(split, "gateway")


def test_without_endpoints_writer_and_reader_do_not_serve_these_clients(tmp_path: Path) -> None:
    with (
        BackgroundService(serve_writer, writer_settings(tmp_path / "store")) as writer,
        grpc.insecure_channel(writer.address) as channel,
    ):
        stub = service_pb2_grpc.MessagingServiceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Heartbeat(service_pb2.HeartbeatRequest(), timeout=20)

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
