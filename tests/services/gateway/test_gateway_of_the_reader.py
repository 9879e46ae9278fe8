"""The gateway as a port of the reader: what it serves, what goes on in one process, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from background_loop import BackgroundService
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from messaging_bed import CLIENT, MessagingBed, receive_request
from service_settings import reader_settings, writer_settings

from penstock.v1 import reader_pb2, reader_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.rocketmq.v2 import definition_pb2 as v2
from services.writer.__main__ import serve as serve_writer

MESSAGING = ["apache.rocketmq.v2.MessagingService", "penstock.v1.Gateway"]
READING = ["penstock.v1.Gateway", "penstock.v1.Groups", "penstock.v1.Leases", "penstock.v1.Reader"]
SHARED = ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]
GROUP = v2.Resource(name="g")
NEXT_S = Duration(seconds=1)


@pytest.fixture(name="bed", scope="module")
def _bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagingBed]:
    with ExitStack() as stack:
        yield MessagingBed(tmp_path_factory.mktemp("port") / "store", stack)


@contextmanager
def running(store: Path, **changes: Any) -> Iterator[BackgroundService]:
    """Give a reader with a gateway's port, beside a writer."""
    with BackgroundService(serve_writer, writer_settings(store)) as writer:
        settings = reader_settings(
            store, gateway_listen="127.0.0.1:0", writer_address=writer.address, **changes
        )
        with BackgroundService(serve_reader, settings) as reader:
            yield reader


def contracts_of(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (listed,) = stub.ServerReflectionInfo(iter([request]), timeout=20)
        names = sorted(each.name for each in listed.list_services_response.service)
        for name in sorted(set(names) - set(SHARED)):
            health = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=name), timeout=20
            )
            assert health.status == health_pb2.HealthCheckResponse.SERVING
    return names


def test_each_port_serves_its_own_contracts(tmp_path: Path) -> None:
    with running(tmp_path / "store") as reader:
        assert contracts_of(reader.gateway_address) == sorted(MESSAGING + SHARED)
        assert contracts_of(reader.address) == sorted(READING + SHARED)
        with grpc.insecure_channel(reader.gateway_address) as channel:
            stub = reader_pb2_grpc.ReaderStub(channel)
            with pytest.raises(grpc.RpcError) as refused:
                stub.GetReaderStatus(reader_pb2.GetReaderStatusRequest(), timeout=20)
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_message_is_sent_received_and_acknowledged(bed: MessagingBed) -> None:
    topic = bed.topic()
    assert bed.send(topic, b"one").code == v2.OK
    [received] = bed.receive(topic, GROUP)
    handle = received.system_properties.receipt_handle

    assert received.body == b"one"
    assert bed.change(topic, GROUP, handle, 60) == v2.OK
    assert bed.acknowledge(topic, GROUP, handle) == v2.OK
    assert bed.acknowledge(topic, GROUP, handle) == v2.INVALID_RECEIPT_HANDLE
    assert bed.receive(topic, GROUP, long_polling_timeout=NEXT_S) == []


@pytest.mark.parametrize("auto_renew", [True, False], ids=["push", "simple"])
def test_a_poll_whose_client_has_gone_takes_nothing(bed: MessagingBed, auto_renew: bool) -> None:
    """What it leased would come after 30 s, or, renewed, not for as long as the client lives."""
    topic, group = bed.topic(), v2.Resource(name=f"gone-{auto_renew}")
    wait = Duration(seconds=20)
    request = receive_request(topic, group, long_polling_timeout=wait, auto_renew=auto_renew)
    assert bed.receive(topic, group, long_polling_timeout=NEXT_S) == []  # which makes the group
    for number in range(30):
        poll = bed.stub.ReceiveMessage(request, timeout=30, metadata=CLIENT)
        time.sleep(0.02)  # it waits
        poll.cancel()
        assert bed.send(topic, b"%d" % number).code == v2.OK
        [received] = bed.receive(topic, group, auto_renew=auto_renew)
        handle = received.system_properties.receipt_handle
        assert (received.body, received.system_properties.delivery_attempt) == (b"%d" % number, 1)
        assert bed.acknowledge(topic, group, handle) == v2.OK
