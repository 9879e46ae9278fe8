"""RocketMQ's clients where accounts are on: what one user's calls do to the clients of another, at the real port."""

from __future__ import annotations

import queue
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from free_ports import free_address
from messaging_bed import message
from real_processes import until
from users import make_users

from penstock import Client, Policy
from penstock.credentials import Credentials
from penstock.v1 import gateway_pb2, gateway_pb2_grpc
from services.config.settings import ReaderSettings, WriterSettings
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2, service_pb2_grpc
from services.reader.__main__ import serve as serve_reader
from services.testing import FREE_PORT, SMALL_FILES, BackgroundService
from services.writer.__main__ import serve as serve_writer
from storage.accounts.rules import UserKind

CHECK_MS = 200
TOLD_NOTHING_S = 1.5  # in this time a producer is asked several times
ORDERS = v2.Resource(name="orders")


class GatewayPortOfUsers:
    """The port, as root (a super user), ann (without policies) and bob (Pub and Sub on orders, Sub on his group)."""

    def __init__(self, root: Client, keys: dict[str, str], reader: str, gateway: str) -> None:
        self.root = root
        self._metadata: dict[str, Any] = {
            name: Credentials(name, key).metadata() for name, key in keys.items()
        } | {"": ()}
        self._channel = grpc.insecure_channel(gateway)
        self._reader_channel = grpc.insecure_channel(reader)
        self.stub: Any = service_pb2_grpc.MessagingServiceStub(self._channel)
        self._clients: Any = gateway_pb2_grpc.GatewayStub(self._reader_channel)

    def metadata(self, user: str, client_id: str) -> Any:
        return (*self._metadata[user], ("x-mq-client-id", client_id))

    def code(self, method: str, request: Any, user: str, client_id: str) -> int:
        metadata = self.metadata(user, client_id)
        return int(getattr(self.stub, method)(request, metadata=metadata, timeout=20).status.code)

    def raw(self, method: str, request: bytes) -> bytes:
        call = self._channel.unary_unary(f"/apache.rocketmq.v2.MessagingService/{method}")
        answer: bytes = call(request, timeout=20)
        return answer

    def sessions(self) -> dict[str, Any]:
        metadata = self.metadata("root", "root")
        answer = self._clients.ListClients(gateway_pb2.ListClientsRequest(), metadata=metadata)
        return {each.client_id: each for each in answer.clients}

    def close(self) -> None:
        self._channel.close()
        self._reader_channel.close()


class Telemetry:
    """A stream of telemetry, and what came on it."""

    def __init__(self, port: GatewayPortOfUsers, user: str, client_id: str) -> None:
        self._commands: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._answers = port.stub.Telemetry(
            iter(self._commands.get, None), metadata=port.metadata(user, client_id)
        )
        self.came: list[Any] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        try:
            for answer in self._answers:
                self.came.append(answer)
        except grpc.RpcError:  # it was cancelled
            pass

    def publish(self, topic: v2.Resource) -> int:
        """Say that it sends to a topic; return the status of the answer."""
        before = len(self.statuses)
        settings = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[topic]))
        self._commands.put(service_pb2.TelemetryCommand(settings=settings))
        until(lambda: len(self.statuses) > before, seconds=20)
        return self.statuses[before]

    @property
    def statuses(self) -> list[int]:
        return [each.status.code for each in self.came if each.HasField("status")]

    @property
    def checks(self) -> list[str]:
        return [
            each.recover_orphaned_transaction_command.transaction_id
            for each in self.came
            if each.HasField("recover_orphaned_transaction_command")
        ]

    def wait_for_end(self) -> None:
        self._reading.join(20)
        assert not self._reading.is_alive()

    def close(self) -> None:
        self._commands.put(None)
        self._answers.cancel()
        self._reading.join(20)


@pytest.fixture(scope="module")
def metrics_address() -> str:
    return free_address()


@pytest.fixture(scope="module")
def port(
    tmp_path_factory: pytest.TempPathFactory, metrics_address: str
) -> Iterator[GatewayPortOfUsers]:
    directory = tmp_path_factory.mktemp("users") / "store"
    keys = make_users(directory, root=UserKind.SUPER, ann=UserKind.NORMAL, bob=UserKind.NORMAL)
    common: dict[str, Any] = {"store": directory, "listen": FREE_PORT, "accounts": True}
    checks = {
        "transaction_timeout_ms": CHECK_MS,
        "transaction_check_interval_ms": CHECK_MS,
        "transaction_check_max": 100_000,
    }
    with (
        BackgroundService(
            serve_writer, WriterSettings(**common, **SMALL_FILES, **checks)
        ) as writer,
        BackgroundService(
            serve_reader,
            ReaderSettings(
                **common,
                writer_address=writer.address,
                gateway_listen=FREE_PORT,
                metrics_listen=metrics_address,
            ),
        ) as reader,
        Client(
            writer=writer.address,
            reader=reader.address,
            access_key="root",
            secret_key=keys["root"],
        ) as root,
    ):
        root.create_topic("orders", queues=1, attributes={"message.type": "TRANSACTION"})
        made = GatewayPortOfUsers(root, keys, reader.address, reader.gateway_address)
        yield made
        made.close()


@pytest.fixture
def bob(port: GatewayPortOfUsers) -> Iterator[Telemetry]:
    """The stream of bob's producer, which has the client id ``bob``."""
    for resource in ("Topic:orders", "Group:packing"):
        port.root.put_policy(Policy(user="bob", resource=resource, actions=("Pub", "Sub")))
    stream = Telemetry(port, "bob", "bob")
    assert stream.publish(ORDERS) == v2.OK
    yield stream
    stream.close()


def leave_a_transaction_open(port: GatewayPortOfUsers) -> None:
    half = message(ORDERS, b"secret", message_type=v2.TRANSACTION)
    request = service_pb2.SendMessageRequest(messages=[half])
    assert port.code("SendMessage", request, "root", "sender") == v2.OK


@pytest.mark.parametrize("client_id", ["ann", "bob"])
def test_who_may_not_send_to_a_topic_gets_none_of_its_half_messages(
    port: GatewayPortOfUsers, bob: Telemetry, client_id: str
) -> None:
    """Nor does its stream displace that of the producer whose id it says."""
    ann = Telemetry(port, "ann", client_id)
    assert ann.publish(ORDERS) == v2.FORBIDDEN
    leave_a_transaction_open(port)
    before = len(bob.checks)
    until(lambda: len(bob.checks) > before + 2, seconds=20)
    assert not ann.checks
    ann.close()


def test_a_producer_that_loses_its_right_is_asked_nothing_more(
    port: GatewayPortOfUsers, bob: Telemetry
) -> None:
    leave_a_transaction_open(port)
    until(lambda: bob.checks, seconds=20)
    port.root.delete_policies("bob")
    time.sleep(1.0)
    asked = len(bob.checks)
    time.sleep(TOLD_NOTHING_S)
    assert len(bob.checks) == asked


def test_a_heartbeat_of_nobody_makes_no_session_and_changes_none(
    port: GatewayPortOfUsers, bob: Telemetry
) -> None:
    heartbeat = service_pb2.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER)
    time.sleep(2.0)
    before = port.sessions()["bob"].silent_ms
    wrong = (("authorization", "MQv2-HMAC-SHA1 Credential=, SignedHeaders=, Signature=00"),)
    for metadata in ((), wrong):
        for client_id in ("bob", "new"):
            answer = port.stub.Heartbeat(
                heartbeat, metadata=(*metadata, ("x-mq-client-id", client_id)), timeout=20
            )
            assert answer.status.code == v2.OK
    sessions = port.sessions()
    assert "new" not in sessions
    assert sessions["bob"].kind == "producer"
    assert sessions["bob"].silent_ms < before  # its own client sends such heartbeats: it is there


def test_a_long_heartbeat_of_nobody_is_not_read(port: GatewayPortOfUsers) -> None:
    an_unknown_field = b"\x9a\x06\x88\x27" + bytes(5_000)
    heartbeat = service_pb2.HeartbeatRequest.FromString(an_unknown_field)
    assert port.code("Heartbeat", heartbeat, "", "bob") == v2.UNAUTHORIZED


def test_a_user_s_client_is_left_alone_by_other_users(
    port: GatewayPortOfUsers, bob: Telemetry
) -> None:
    group = v2.Resource(name="stealing")
    port.root.put_policy(Policy(user="ann", resource="Group:stealing", actions=("Sub",)))
    heartbeat = service_pb2.HeartbeatRequest(group=group, client_type=v2.PUSH_CONSUMER)
    assert port.code("Heartbeat", heartbeat, "ann", "bob") == v2.FORBIDDEN
    leaving = service_pb2.NotifyClientTerminationRequest()
    assert port.code("NotifyClientTermination", leaving, "ann", "bob") == v2.FORBIDDEN
    ann = Telemetry(port, "ann", "bob")
    port.root.put_policy(Policy(user="ann", resource="Topic:orders", actions=("Pub",)))
    assert ann.publish(ORDERS) == v2.FORBIDDEN
    ann.close()
    port.root.delete_policies("ann")
    assert port.sessions()["bob"].group == ""
    assert port.code("Heartbeat", service_pb2.HeartbeatRequest(), "bob", "bob") == v2.OK
    assert port.code("NotifyClientTermination", leaving, "bob", "bob") == v2.OK
    assert "bob" not in port.sessions()


def test_refusals_in_answers_are_counted_as_refusals(
    port: GatewayPortOfUsers, metrics_address: str
) -> None:
    send = service_pb2.SendMessageRequest(messages=[message(ORDERS)])
    route = service_pb2.QueryRouteRequest(topic=ORDERS)
    before = page(metrics_address)
    assert port.code("SendMessage", send, "ann", "ann") == v2.FORBIDDEN
    assert port.code("QueryRoute", route, "", "ann") == v2.UNAUTHORIZED
    stream = Telemetry(port, "", "ann")
    stream.wait_for_end()
    assert stream.statuses == [v2.UNAUTHORIZED]
    stream.close()
    for count, name, labels in (
        (1, "penstock_refusals_total", ['reason="PERMISSION_DENIED"']),
        (2, "penstock_refusals_total", ['reason="UNAUTHENTICATED"']),
        (1, "penstock_rpc_seconds_count", ['method="SendMessage"', 'code="PERMISSION_DENIED"']),
        (1, "penstock_rpc_seconds_count", ['method="QueryRoute"', 'code="UNAUTHENTICATED"']),
        (1, "penstock_rpc_seconds_count", ['method="Telemetry"', 'code="UNAUTHENTICATED"']),
    ):
        after = page(metrics_address)
        assert total(after, name, labels) - total(before, name, labels) == count, (name, labels)


def test_what_nobody_is_known_by_is_not_parsed(port: GatewayPortOfUsers) -> None:
    answer = port.raw("SendMessage", b"no request")
    assert service_pb2.SendMessageResponse.FromString(answer).status.code == v2.UNAUTHORIZED
    change = service_pb2.ChangeInvisibleDurationRequest(receipt_handle="h")
    for message_id, handle in (("m", "h"), ("m" * 20_000, "")):
        change.message_id = message_id
        data = port.raw("ChangeInvisibleDuration", change.SerializeToString())
        refused = service_pb2.ChangeInvisibleDurationResponse.FromString(data)
        assert (refused.status.code, refused.receipt_handle) == (v2.UNAUTHORIZED, handle)


def total(samples: dict[str, float], name: str, labels: list[str]) -> float:
    return sum(
        value
        for sample, value in samples.items()
        if sample.startswith(f"{name}{{") and all(each in sample for each in labels)
    )


def page(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    samples = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}
