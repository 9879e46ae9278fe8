"""Producers of RocketMQ: routes, settings, sends, and what they are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from messaging_bed import CLIENT, ENDPOINTS, MessagingBed
from messaging_bed import message as make
from real_processes import until

from penstock.v1 import gateway_pb2, gateway_pb2_grpc
from services.gateway.messages.queue_choice import queue_of_message_group
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2


def message(topic: str, number: int, **changes: Any) -> v2.Message:
    return make(v2.Resource(name=topic), b"body %d" % number, **changes)


def settings_of(bed: MessagingBed, settings: v2.Settings, client: Any = CLIENT) -> Any:
    commands = iter([service_pb2.TelemetryCommand(settings=settings)])
    return next(bed.stub.Telemetry(commands, metadata=client, timeout=10))


def test_a_route_names_every_queue_where_the_client_came_in(bed: MessagingBed) -> None:
    answer = bed.call(
        "QueryRoute",
        service_pb2.QueryRouteRequest(topic=v2.Resource(name="orders"), endpoints=ENDPOINTS),
    )

    assert answer.status.code == v2.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2, 3]
    for queue in answer.message_queues:
        assert (queue.permission, queue.broker.id, queue.broker.endpoints) == (
            v2.READ_WRITE, 0, ENDPOINTS,
        )  # fmt: skip
        assert list(queue.accept_message_types) == [v2.NORMAL]


@pytest.mark.parametrize(
    ("name", "code"),
    [("nowhere", v2.TOPIC_NOT_FOUND), ("a b", v2.ILLEGAL_TOPIC), ("", v2.ILLEGAL_TOPIC)],
)
def test_a_route_of_no_topic_says_why(bed: MessagingBed, name: str, code: int) -> None:
    request = service_pb2.QueryRouteRequest(topic=v2.Resource(name=name), endpoints=ENDPOINTS)

    assert bed.call("QueryRoute", request).status.code == code


@pytest.mark.parametrize(
    "endpoints",
    [
        v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="h" * 200, port=1)] * 17),
        v2.Endpoints(scheme=v2.IPv4),
        v2.Endpoints(addresses=[v2.Address(host="h", port=1)]),
        v2.Endpoints(scheme=9, addresses=[v2.Address(host="h", port=1)]),  # type: ignore[arg-type]
    ],
)
def test_endpoints_that_no_client_could_use_are_refused(
    bed: MessagingBed, endpoints: v2.Endpoints
) -> None:
    """Those of a client come back with every queue of the route."""
    request = service_pb2.QueryRouteRequest(topic=v2.Resource(name="orders"), endpoints=endpoints)

    assert bed.call("QueryRoute", request).status.code == v2.ILLEGAL_ACCESS_POINT


def test_a_producer_gets_the_settings_that_every_client_needs(bed: MessagingBed) -> None:
    asked = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(max_body_size=128 << 20))
    command = settings_of(bed, asked)

    assert command.status.code == v2.OK
    assert command.settings.publishing.max_body_size == 4 << 20
    assert command.settings.publishing.validate_message_type
    policy = command.settings.backoff_policy
    assert (policy.max_attempts, policy.WhichOneof("strategy")) == (3, "exponential_backoff")
    assert policy.exponential_backoff.initial.ToMilliseconds() == 10


@pytest.mark.parametrize(
    ("client", "settings", "code"),
    [
        ((), v2.Settings(publishing=v2.Publishing()), v2.CLIENT_ID_REQUIRED),
        (CLIENT, v2.Settings(), v2.UNRECOGNIZED_CLIENT_TYPE),
        (CLIENT, v2.Settings(subscription=v2.Subscription()), v2.ILLEGAL_CONSUMER_GROUP),
    ],
)
def test_settings_that_say_too_little_are_answered_with_a_status(
    bed: MessagingBed, client: Any, settings: v2.Settings, code: int
) -> None:
    assert settings_of(bed, settings, client).status.code == code


def test_a_message_group_stays_in_its_queue_whatever_the_client_chose(bed: MessagingBed) -> None:
    bed.create("grouped", 4, "FIFO")
    for number in range(6):
        chosen = message(
            "grouped", number, message_type=v2.FIFO, message_group="g", queue_id=number % 4
        )
        assert bed.send_all(chosen).entries[0].offset == number
    until(lambda: sum(bed.ends("grouped").values()) == 6)  # they are dispatched after the answer
    assert bed.ends("grouped")[queue_of_message_group("g", 4)] == 6


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (message("nowhere", 1), v2.TOPIC_NOT_FOUND),
        (message("a b", 1), v2.ILLEGAL_TOPIC),
        (message("ordered", 1), v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (message("orders", 1, tag="a|b"), v2.ILLEGAL_MESSAGE_TAG),
        (message("orders", 1, message_id=""), v2.ILLEGAL_MESSAGE_ID),
    ],
)
def test_a_message_that_cannot_be_stored_is_refused_in_the_answer(
    bed: MessagingBed, sent: v2.Message, code: int
) -> None:
    answer = bed.send_all(sent)

    assert (answer.status.code, len(answer.entries)) == (code, 0)


@pytest.mark.parametrize("method", ["SyncLiteSubscription", "GetOffset"])
def test_what_is_not_served_says_so(bed: MessagingBed, method: str) -> None:
    request = getattr(service_pb2, f"{method}Request")()

    assert bed.call(method, request).status.code == v2.NOT_IMPLEMENTED


def test_connected_clients_are_listed_with_what_they_said(bed: MessagingBed) -> None:
    named = (("x-mq-client-id", "listed"), ("x-mq-language", "JAVA"))
    settings = v2.Settings(
        client_type=v2.SIMPLE_CONSUMER,
        user_agent=v2.UA(version="5.2.0"),
        subscription=v2.Subscription(
            group=v2.Resource(name="listing"),
            subscriptions=[v2.SubscriptionEntry(topic=v2.Resource(name="orders"))] * 100,
        ),
    )
    assert settings_of(bed, settings, named).status.code == v2.OK
    stub = gateway_pb2_grpc.GatewayStub(bed.channel)
    [client] = stub.ListClients(gateway_pb2.ListClientsRequest(group="listing"), timeout=10).clients

    assert (client.client_id, client.kind, client.language) == ("listed", "simple_consumer", "JAVA")
    assert (client.version, list(client.topics)) == ("5.2.0", ["orders"] * 64)
    assert client.peer.startswith("127.0.0.1:")
    assert 0 <= client.silent_ms < 60_000
    shown = bed.penstock("clients", "listing", "--json", "--gateway", bed.addresses["gateway"])
    assert json.loads(shown.stdout)["client"] == "listed"


def test_sends_go_on_while_write_queues_are_lowered(bed: MessagingBed) -> None:
    """The gateway chose the queue by what it knew of the topic, so it chooses again."""
    bed.create("shrinking", 8)
    for number in range(8):
        assert bed.send_all(message("shrinking", number)).status.code == v2.OK
    bed.client.update_topic("shrinking", write_queues=2)

    answers = [bed.send_all(message("shrinking", 100 + number)) for number in range(8)]

    assert [answer.status.code for answer in answers] == [v2.OK] * 8
    assert sorted(bed.ends("shrinking").values()) == [1] * 6 + [5, 5]
