"""Consumers of RocketMQ: what they receive, what they are refused, and what becomes of their leases."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from messaging_bed import CLIENT, ENDPOINTS, MessagingBed, codes_of, message, receive_request
from real_processes import until

from penstock import RecordBatch
from penstock.v1 import leases_pb2
from services.gateway.receives import handles_of
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2

GROUP = v2.Resource(name="billing")
PUSH_LEASE_MS = 1_200
SOON = Duration(seconds=1)


@pytest.fixture(name="bed", scope="module")
def _bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MessagingBed]:
    with ExitStack() as stack:
        store = tmp_path_factory.mktemp("gateway") / "store"
        yield MessagingBed(store, stack, push_lease_ms=PUSH_LEASE_MS)


def client_of(name: str) -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", name),)


def test_a_message_comes_back_with_everything_that_clients_look_at(bed: MessagingBed) -> None:
    topic = bed.topic("MIXED")
    topic.resource_namespace = "shop"
    sent = message(
        topic, b"body 7", message_type=v2.FIFO, message_group="g", tag="paid", keys=["a", "b"],
        trace_context="00-1", born_host="client-7",
    )  # fmt: skip
    sent.system_properties.born_timestamp.FromMilliseconds(1_795_390_149_123)
    sent.user_properties["colour"] = "red"
    [stored] = bed.call("SendMessage", service_pb2.SendMessageRequest(messages=[sent])).entries
    status, first, clock = bed.call("ReceiveMessage", receive_request(topic, GROUP))

    assert status.status.code == v2.OK
    assert abs(clock.delivery_timestamp.seconds - time.time()) < 60
    received, system = first.message, first.message.system_properties
    assert (received.topic, received.body) == (topic, b"body 7")
    assert dict(received.user_properties) == {"colour": "red", "__SHARDINGKEY": "g"}
    assert system.message_id == stored.message_id == sent.system_properties.message_id
    assert (system.tag, list(system.keys), system.trace_context) == ("paid", ["a", "b"], "00-1")
    assert (system.message_group, system.message_type) == ("g", v2.FIFO)
    assert (system.queue_offset, system.delivery_attempt) == (stored.offset, 1)
    assert (system.born_host, system.body_encoding) == ("client-7", v2.IDENTITY)
    assert system.born_timestamp.ToMilliseconds() == 1_795_390_149_123
    assert abs(system.store_timestamp.seconds - time.time()) < 60
    assert system.body_digest.checksum == hashlib.md5(b"body 7").hexdigest().upper()
    assert system.receipt_handle and system.store_host


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"invisible_duration": Duration(seconds=9)}, v2.ILLEGAL_INVISIBLE_TIME),
        ({"invisible_duration": Duration(seconds=43_201)}, v2.ILLEGAL_INVISIBLE_TIME),
        ({"group": v2.Resource(name="a b")}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"group": v2.Resource(name="CID_RMQ_SYS_TRANS")}, v2.ILLEGAL_CONSUMER_GROUP),
        ({"message_queue": v2.MessageQueue(topic=v2.Resource(name="a b"))}, v2.ILLEGAL_TOPIC),
        ({"filter_expression": v2.FilterExpression(type=9)}, v2.ILLEGAL_FILTER_EXPRESSION),  # type: ignore[arg-type]
        ({"auto_renew": True, "client": ()}, v2.CLIENT_ID_REQUIRED),
    ],
)
def test_a_receive_that_breaks_a_rule_is_refused_and_leases_nothing(
    bed: MessagingBed, changes: dict[str, Any], code: int
) -> None:
    topic, client = bed.topic(), changes.get("client", CLIENT)
    assert bed.send(topic).code == v2.OK
    request = receive_request(
        topic, GROUP, **{name: each for name, each in changes.items() if name != "client"}
    )

    assert codes_of(bed.call("ReceiveMessage", request, client)) == {code}
    assert len(bed.receive(topic, GROUP)) == 1


def test_a_consumer_gets_the_settings_of_its_group(bed: MessagingBed) -> None:
    bed.client.create_group("slow", orderly=True, retry_max_times=2, backoff=[1_000, 7_000])
    asked = v2.Settings(
        client_type=v2.PUSH_CONSUMER, subscription=v2.Subscription(group=v2.Resource(name="slow"))
    )
    commands = iter([service_pb2.TelemetryCommand(settings=asked)])
    command = next(bed.stub.Telemetry(commands, metadata=CLIENT, timeout=10))

    subscription = command.settings.subscription
    assert command.status.code == v2.OK
    assert (subscription.fifo, subscription.receive_batch_size) == (True, 32)
    assert subscription.long_polling_timeout.seconds == 20
    policy = command.settings.backoff_policy
    assert policy.max_attempts == 3
    assert [each.seconds for each in policy.customized_backoff.next] == [1, 7]


@pytest.mark.parametrize(("orderly", "queue_ids"), [(False, [-1]), (True, [0, 1])])
def test_an_assignment_is_all_queues_at_once_or_each_in_order(
    bed: MessagingBed, orderly: bool, queue_ids: list[int]
) -> None:
    bed.client.create_group(f"assigned-{orderly}", orderly=orderly)
    request = service_pb2.QueryAssignmentRequest(
        topic=bed.topic(), group=v2.Resource(name=f"assigned-{orderly}"), endpoints=ENDPOINTS
    )
    answer = bed.call("QueryAssignment", request)

    assert answer.status.code == v2.OK
    assert [each.message_queue.id for each in answer.assignments] == queue_ids


def test_leases_of_a_push_consumer_are_renewed_while_it_lives_and_released_when_it_goes(
    bed: MessagingBed,
) -> None:
    """It never sent settings: what a client does makes its session."""
    topic = bed.topic()
    assert bed.send(topic).code == v2.OK
    pusher = client_of("pusher")
    assert len(bed.receive(topic, GROUP, pusher, auto_renew=True, invisible_duration=None)) == 1
    three_leases = Duration(nanos=0, seconds=4)
    assert bed.receive(topic, GROUP, long_polling_timeout=three_leases) == []
    bed.call("NotifyClientTermination", service_pb2.NotifyClientTerminationRequest(), pusher)
    [again] = bed.receive(topic, GROUP)
    assert again.system_properties.delivery_attempt == 2


@pytest.mark.parametrize("handles", [(), ("a" * 40,), ("a" * 40, "b" * 40)])
def test_an_answer_has_a_handle_a_message_and_an_empty_one_none(handles: tuple[str, ...]) -> None:
    """A client that went as it was told that there is nothing once met a division by zero."""
    answer = leases_pb2.ReceiveResponse(
        record_count=len(handles), receipt_handles="".join(handles).encode()
    )

    assert handles_of(answer) == list(handles)


def test_messages_of_a_call_that_is_given_up_are_delivered_to_others(bed: MessagingBed) -> None:
    """Its client takes nothing of an answer without its end."""
    topic, many = bed.topic(), 400
    batch = RecordBatch(topic.name, queue_id=0)
    for _ in range(many):
        batch.add(b"x" * 10_000)
    bed.client.produce_batch(batch)
    until(lambda: bed.ends(topic.name)[0] == many)
    call = bed.stub.ReceiveMessage(
        receive_request(topic, GROUP, batch_size=many, invisible_duration=Duration(seconds=600)),
        timeout=20,
        metadata=CLIENT,
    )
    next(call)
    call.cancel()
    received: list[v2.Message] = []
    until(
        lambda: (
            received.extend(bed.receive(topic, GROUP, batch_size=32, long_polling_timeout=SOON))
            or len(received) == many
        )
    )  # type: ignore[func-returns-value]
