"""Consumers of RocketMQ: receives, acknowledgements, changes, dead letters, over a reader that a test plays."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from gateway_bed import CLIENT, GatewayBed
from google.protobuf.duration_pb2 import Duration
from real_processes import until

from penstock.v1 import groups_pb2, leases_pb2
from services.gateway.receives import handles_of
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.errors import StoreBusy, TopicNotFound
from storage.format.properties import encode_properties
from storage.format.record import encode_record

GROUP = v2.Resource(name="billing")
TOPIC = v2.Resource(resource_namespace="shop", name="orders")
HANDLES = ("a" * 40, "b" * 40)


@pytest.fixture(autouse=True)
def _as_before(bed: GatewayBed) -> Iterator[None]:
    yield
    bed.leases.asked.clear()
    bed.leases.answers.clear()
    bed.leases.errors.clear()


def record(number: int, **properties: str) -> bytes:
    return encode_record(
        topic="orders",
        queue_id=2,
        body=b"body %d" % number,
        properties_block=encode_properties({"UNIQ_KEY": f"01{number:X}", **properties}),
        queue_offset=number,
        born_timestamp_ms=1_795_390_149_123,
        born_host="10.0.0.7:5",
        store_timestamp_ms=1_795_390_149_456,
        store_host="10.0.0.1:10911",
    )


def leased(*records: bytes, attempts: tuple[int, ...] = (1, 3)) -> leases_pb2.ReceiveResponse:
    return leases_pb2.ReceiveResponse(
        record_count=len(records),
        attempts=attempts[: len(records)],
        receipt_handles="".join(HANDLES[: len(records)]).encode(),
        records=b"".join(records),
    )


def receive(bed: GatewayBed, *, timeout: float = 30, client: Any = CLIENT, **changes: Any) -> Any:
    request = service_pb2.ReceiveMessageRequest(
        **{
            "group": GROUP,
            "message_queue": v2.MessageQueue(topic=TOPIC, id=1),
            "filter_expression": v2.FilterExpression(type=v2.TAG, expression="*"),
            "batch_size": 16,
            "invisible_duration": Duration(seconds=15),
            "long_polling_timeout": Duration(seconds=1),
            **changes,
        }
    )
    return list(bed.stub.ReceiveMessage(request, timeout=timeout, metadata=client))


def acknowledge(bed: GatewayBed, *handles: str) -> service_pb2.AckMessageResponse:
    request = service_pb2.AckMessageRequest(
        group=GROUP,
        topic=TOPIC,
        entries=[service_pb2.AckMessageEntry(message_id="01", receipt_handle=h) for h in handles],
    )
    answer = bed.call("AckMessage", request)
    assert isinstance(answer, service_pb2.AckMessageResponse)
    return answer


def test_a_message_comes_back_with_everything_that_clients_look_at(bed: GatewayBed) -> None:
    stored = record(
        7, TAGS="paid", KEYS="a b", colour="red", __SHARDINGKEY="g", TRACE_CONTEXT="00-1",
        __BORNHOST="client-7", MSG_REGION="DefaultRegion",
    )  # fmt: skip
    bed.leases.answers["receive"] = leased(stored, record(8))
    status, first, second, clock = receive(bed)

    assert status.status.code == v2.OK
    assert abs(clock.delivery_timestamp.seconds - time.time()) < 60
    message, system = first.message, first.message.system_properties
    assert (message.topic, message.body) == (TOPIC, b"body 7")
    assert dict(message.user_properties) == {"colour": "red", "__SHARDINGKEY": "g"}
    assert (system.message_id, system.tag, list(system.keys)) == ("017", "paid", ["a", "b"])
    assert (system.message_group, system.message_type, system.trace_context) == (
        "g",
        v2.FIFO,
        "00-1",
    )
    assert (system.queue_id, system.queue_offset, system.delivery_attempt) == (2, 7, 1)
    assert (system.born_host, system.store_host) == ("client-7", "10.0.0.1:10911")
    assert system.born_timestamp.ToMilliseconds() == 1_795_390_149_123
    assert system.store_timestamp.ToMilliseconds() == 1_795_390_149_456
    assert (system.receipt_handle, system.body_encoding) == (HANDLES[0], v2.IDENTITY)
    assert system.body_digest.checksum == hashlib.md5(b"body 7").hexdigest().upper()
    assert second.message.system_properties.delivery_attempt == 3
    assert second.message.system_properties.message_type == v2.NORMAL
    assert not second.message.system_properties.HasField("message_group")
    [asked] = bed.leases.of(leases_pb2.ReceiveRequest)
    assert (asked.group, asked.topic, asked.max_messages) == ("billing", "orders", 16)
    assert (asked.lease_ms, list(asked.queue_ids)) == (15_000, [])
    assert 500 < asked.wait_ms <= 1_000


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
def test_a_receive_that_breaks_a_rule_is_refused_and_not_asked(
    bed: GatewayBed, changes: dict[str, Any], code: int
) -> None:
    [answer] = receive(bed, **changes)

    assert answer.status.code == code
    assert bed.leases.of(leases_pb2.ReceiveRequest) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("orders"), v2.TOPIC_NOT_FOUND),
        (StoreBusy("1,024 wait already", retry_delay_ms=1), v2.TOO_MANY_REQUESTS),
    ],
)
def test_a_refusal_of_the_reader_is_a_status_of_the_answer(
    bed: GatewayBed, error: Any, code: int
) -> None:
    bed.leases.errors["receive"] = error
    [answer] = receive(bed)

    assert answer.status.code == code


def test_an_acknowledgement_has_the_status_of_its_one_entry(bed: GatewayBed) -> None:
    assert acknowledge(bed, HANDLES[0]).status.code == v2.OK
    bed.leases.answers["acknowledge"] = leases_pb2.AcknowledgeResponse(
        refused=[leases_pb2.RefusedHandle(index=0, problem=leases_pb2.EXPIRED)]
    )
    answer = acknowledge(bed, HANDLES[0])

    assert answer.status.code == answer.entries[0].status.code == v2.INVALID_RECEIPT_HANDLE


def change(bed: GatewayBed, duration: Duration) -> service_pb2.ChangeInvisibleDurationResponse:
    request = service_pb2.ChangeInvisibleDurationRequest(
        group=GROUP, topic=TOPIC, receipt_handle=HANDLES[0], invisible_duration=duration
    )
    answer = bed.call("ChangeInvisibleDuration", request)
    assert isinstance(answer, service_pb2.ChangeInvisibleDurationResponse)
    return answer


def test_a_message_that_is_given_up_is_a_dead_letter(bed: GatewayBed) -> None:
    request = service_pb2.ForwardMessageToDeadLetterQueueRequest(
        group=GROUP, topic=TOPIC, receipt_handle=HANDLES[0]
    )

    assert bed.call("ForwardMessageToDeadLetterQueue", request).status.code == v2.OK
    [asked] = bed.leases.of(leases_pb2.DeadLetterRequest)
    assert (asked.group, asked.receipt_handles) == ("billing", HANDLES[0].encode())


def test_a_consumer_gets_the_settings_of_its_group(bed: GatewayBed) -> None:
    bed.leases.group_settings["slow"] = groups_pb2.GroupSettings(
        name="slow",
        orderly=True,
        retry_max_times=2,
        backoff=groups_pb2.Backoff(customized=groups_pb2.CustomizedBackoff(next_ms=[1_000, 7_000])),
    )
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


@pytest.mark.parametrize(("orderly", "queue_ids"), [(False, [-1]), (True, [0, 1, 2, 3])])
def test_an_assignment_is_all_queues_at_once_or_each_in_order(
    bed: GatewayBed, orderly: bool, queue_ids: list[int]
) -> None:
    name = f"assigned-{orderly}"
    bed.leases.group_settings[name] = groups_pb2.GroupSettings(orderly=orderly)
    answer = bed.call(
        "QueryAssignment",
        service_pb2.QueryAssignmentRequest(
            topic=v2.Resource(name="orders"),
            group=v2.Resource(name=name),
            endpoints=v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="h", port=1)]),
        ),
    )

    assert answer.status.code == v2.OK
    assert [each.message_queue.id for each in answer.assignments] == queue_ids


def client_of(name: str) -> tuple[tuple[str, str], ...]:
    return (("x-mq-client-id", name),)


def test_leases_of_a_push_consumer_are_renewed_while_it_lives_and_released_when_it_goes(
    bed: GatewayBed,
) -> None:
    """It never sent settings: what a client does makes its session."""
    receive(bed, auto_renew=True, invisible_duration=None, client=client_of("pusher"))
    [asked] = bed.leases.of(leases_pb2.ReceiveRequest)
    assert (asked.auto_renew, asked.lease_ms) == (True, 1_200)
    assert asked.client_id.startswith("pusher@")

    def renewals() -> list[Any]:
        requests = bed.leases.of(leases_pb2.RenewLeasesRequest)
        return [request for request in requests if asked.client_id in request.client_ids]

    until(lambda: len(renewals()) >= 2)
    bed.call(
        "NotifyClientTermination",
        service_pb2.NotifyClientTerminationRequest(),
        client=client_of("pusher"),
    )
    until(lambda: bool(bed.leases.of(leases_pb2.ReleaseLeasesRequest)))
    [released] = bed.leases.of(leases_pb2.ReleaseLeasesRequest)
    assert list(released.client_ids) == [asked.client_id]


@pytest.mark.parametrize("handles", [(), HANDLES[:1], HANDLES])
def test_an_answer_has_a_handle_a_message_and_an_empty_one_none(handles: tuple[str, ...]) -> None:
    """A client that went as it was told that there is nothing once met a division by zero."""
    answer = leases_pb2.ReceiveResponse(
        record_count=len(handles), receipt_handles="".join(handles).encode()
    )

    assert handles_of(answer) == list(handles)


def test_messages_of_a_call_that_is_given_up_are_delivered_to_others(bed: GatewayBed) -> None:
    """Its client takes nothing of an answer without its end."""
    many = 400
    bed.leases.answers["receive"] = leases_pb2.ReceiveResponse(
        record_count=many,
        attempts=[1] * many,
        receipt_handles=b"".join(b"%040d" % n for n in range(many)),
        records=b"".join(record(n, filler="x" * 10_000) for n in range(many)),
    )
    request = service_pb2.ReceiveMessageRequest(
        group=GROUP,
        message_queue=v2.MessageQueue(topic=TOPIC),
        invisible_duration=Duration(seconds=15),
    )
    call = bed.stub.ReceiveMessage(request, timeout=20, metadata=CLIENT)
    next(call)
    call.cancel()

    def given_back() -> int:
        changes = bed.leases.of(leases_pb2.ChangeLeasesRequest)
        assert {change.duration_ms for change in changes} <= {1_000}
        return sum(len(change.receipt_handles) // 40 for change in changes)

    until(lambda: given_back() == many)
