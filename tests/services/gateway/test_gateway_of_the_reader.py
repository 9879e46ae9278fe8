"""The gateway as a port of the reader: what it serves, what goes on in one process, and how it ends."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Certificates
from flips import flip_unit
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from messaging_bed import CLIENT, MessagingBed, receive_request
from service_settings import reader_settings, writer_settings

from penstock import Client
from penstock.v1 import reader_pb2, reader_pb2_grpc
from services.gateway.receives import Receiving
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.rpc.ports import CannotListen
from services.testing import BackgroundLoop, BackgroundService
from services.writer.__main__ import serve as serve_writer

MESSAGING = ["apache.rocketmq.v2.MessagingService", "penstock.v1.Gateway"]


READING = [
    "penstock.v1.Gateway",
    "penstock.v1.Groups",
    "penstock.v1.Authentication",
    "penstock.v1.Leases",
    "penstock.v1.Reader",
    "penstock.v1.Settings",
    "penstock.v1.Traffic",
]


SHARED = ["grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"]


GROUP = v2.Resource(name="g")


NEXT_S = Duration(seconds=1)


@contextmanager
def running(store: Path, **changes: Any) -> Iterator[BackgroundService]:
    """Give a reader with a gateway's port, beside a writer."""
    tls = {name: value for name, value in changes.items() if name.startswith("tls")}
    with BackgroundService(serve_writer, writer_settings(store, **tls)) as writer:
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


def test_each_port_takes_its_part_of_half_the_files(tmp_path: Path, port_shares: list[int]) -> None:
    with running(tmp_path / "store", connections_max=777):
        pass
    assert port_shares == [4, 4]  # of the gateway, and the reader


def test_a_gateway_with_tls_asks_rocketmqs_clients_for_no_certificate(
    tmp_path: Path, certificates: Certificates
) -> None:
    """They have none, and the other ports ask for one."""
    tls = certificates.mutual
    with running(tmp_path / "store", **tls) as reader:
        with certificates.channel(reader.gateway_address) as channel:
            stub = service_pb2_grpc.MessagingServiceStub(channel)
            answer = stub.Heartbeat(service_pb2.HeartbeatRequest(), metadata=CLIENT, timeout=20)
        assert answer.status.code == v2.OK
        with certificates.channel(reader.address) as channel, pytest.raises(grpc.RpcError) as shut:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=20)
    assert shut.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_gateway_with_a_client_ca_asks_for_a_certificate(
    tmp_path: Path, certificates: Certificates
) -> None:
    tls = certificates.settings | {"gateway_client_ca": certificates.ca}
    with running(tmp_path / "store", **tls) as reader:
        for identity, code in ((certificates.alice, None), (None, grpc.StatusCode.UNAVAILABLE)):
            with certificates.channel(reader.gateway_address, identity) as channel:
                stub = service_pb2_grpc.MessagingServiceStub(channel)
                call = stub.Heartbeat.future(
                    service_pb2.HeartbeatRequest(), metadata=CLIENT, timeout=20
                )
                assert (call.code() if call.exception() else None) is code


def test_an_address_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    with (
        BackgroundService(serve_writer, writer_settings(tmp_path / "store")) as writer,
        BackgroundLoop() as loop,
    ):
        taken = reader_settings(tmp_path / "store", gateway_listen=writer.address)
        with pytest.raises(CannotListen, match=writer.address):
            loop.run(serve_reader(taken, asyncio.Event(), lambda *_: None))


@pytest.mark.parametrize("auto_renew", [True, False], ids=["push", "simple"])
def test_a_poll_whose_client_has_gone_takes_nothing(bed: MessagingBed, auto_renew: bool) -> None:
    """What it leased would come after 30 s, or, renewed, not for as long as the client lives."""
    topic, group = bed.topic(), v2.Resource(name=f"gone-{auto_renew}")
    wait = Duration(seconds=20)
    request = receive_request(topic, group, long_polling_timeout=wait, auto_renew=auto_renew)
    assert bed.receive(topic, group, long_polling_timeout=NEXT_S) == []  # which makes the group
    for number in range(8):
        poll = bed.stub.ReceiveMessage(request, timeout=30, metadata=CLIENT)
        time.sleep(0.02)  # it waits
        poll.cancel()
        assert bed.send(topic, b"%d" % number).code == v2.OK
        [received] = bed.receive(topic, group, auto_renew=auto_renew)
        handle = received.system_properties.receipt_handle
        assert (received.body, received.system_properties.delivery_attempt) == (b"%d" % number, 1)
        assert bed.acknowledge(topic, group, handle) == v2.OK


@pytest.mark.parametrize("auto_renew", [True, False], ids=["push", "simple"])
def test_a_poll_whose_client_says_that_it_goes_is_answered_and_takes_nothing(
    bed: MessagingBed, monkeypatch: pytest.MonkeyPatch, auto_renew: bool
) -> None:
    topic, group = bed.topic(), v2.Resource(name=f"goes-{auto_renew}")
    leaving = (("x-mq-client-id", "leaving"),)
    assert bed.receive(topic, group, long_polling_timeout=NEXT_S) == []  # which makes the group
    wait = Duration(seconds=25)
    request = receive_request(topic, group, long_polling_timeout=wait, auto_renew=auto_renew)
    waits = threading.Event()
    ask = Receiving._ask_in_line

    async def noted(self: Receiving, *asked: Any) -> Any:
        waits.set()
        return await ask(self, *asked)

    monkeypatch.setattr(Receiving, "_ask_in_line", noted)
    poll = bed.stub.ReceiveMessage(request, timeout=30, metadata=leaving)
    assert waits.wait(30)
    began = time.monotonic()
    goodbye = service_pb2.NotifyClientTerminationRequest(group=group)
    assert bed.call("NotifyClientTermination", goodbye, leaving).status.code == v2.OK
    answers = list(poll)
    took = time.monotonic() - began
    assert bed.send(topic, b"one").code == v2.OK
    [received] = bed.receive(topic, group)

    assert answers[0].status.code == v2.MESSAGE_NOT_FOUND
    assert took < 20  # and not at the end of its time
    assert (received.body, received.system_properties.delivery_attempt) == (b"one", 1)


def test_a_queue_that_the_writer_rebuilds_is_waited_for(tmp_path: Path) -> None:
    """A receive that meets the refused unit waits for it, and nothing is passed over."""
    with ExitStack() as stack:
        bed = MessagingBed(tmp_path / "store", stack)
        bed.client.create_topic("t", queues=1)
        for n in range(8):
            bed.client.produce("t", b"%d" % n, queue_id=0)
        assert len(bed.client.pull("t", 0, 0).records) == 8
        path, before = flip_unit(tmp_path / "store", "t", 3)

        received: list[bytes] = []
        while len(received) < 8:
            got = bed.receive(v2.Resource(name="t"), GROUP)
            assert got, received
            received += [each.body for each in got]
        assert received == [b"%d" % n for n in range(8)]
        assert path.read_bytes() == before


def test_a_stop_ends_polls_and_streams_at_once(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with BackgroundService(serve_writer, writer_settings(store)) as writer:
        settings = reader_settings(
            store, gateway_listen="127.0.0.1:0", writer_address=writer.address,
            drain_grace_seconds=30,
        )  # fmt: skip
        reader = BackgroundService(serve_reader, settings)
        with reader, grpc.insecure_channel(reader.gateway_address) as channel:
            stub: Any = service_pb2_grpc.MessagingServiceStub(channel)
            with Client(writer=writer.address) as client:
                client.create_topic("t", queues=1)
            asked = receive_request(
                v2.Resource(name="t"), GROUP, long_polling_timeout=Duration(seconds=30)
            )
            polled: list[list[Any]] = []
            ended: list[Any] = []

            def poll() -> None:
                polled.append(list(stub.ReceiveMessage(asked, metadata=CLIENT, timeout=40)))

            def listen() -> None:
                stream = stub.Telemetry(iter(threading.Event().wait, True), metadata=CLIENT)
                ended.append((list(stream), stream.code()))

            threads = [threading.Thread(target=poll) for _ in range(20)]
            threads.append(threading.Thread(target=listen))
            for thread in threads:
                thread.start()
            time.sleep(1)
            assert not polled
            began = time.monotonic()
            reader.stop()
            took = time.monotonic() - began
            for thread in threads:
                thread.join(60)
    assert took < 25  # and not until the end of what waits
    assert [answers[0].status.code for answers in polled] == [v2.MESSAGE_NOT_FOUND] * 20
    assert ended == [([], grpc.StatusCode.OK)]
