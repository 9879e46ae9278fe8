"""Calls in any order, by nobody, and with what no client should send: each has its documented code."""

from __future__ import annotations

import queue
import random
import string
from typing import Any

import grpc
import pytest
from messaging_bed import CLIENT, ENDPOINTS, MessagingBed, codes_of, every_call, receive_request
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2

EXPECTED = {
    "QueryRoute": {v2.OK},
    "QueryAssignment": {v2.OK},
    "Heartbeat": {v2.OK},
    "SendMessage": {v2.OK},
    "ReceiveMessage": {v2.OK, v2.MESSAGE_NOT_FOUND},
    "AckMessage": {v2.INVALID_RECEIPT_HANDLE},
    "ChangeInvisibleDuration": {v2.INVALID_RECEIPT_HANDLE},
    "ForwardMessageToDeadLetterQueue": {v2.INVALID_RECEIPT_HANDLE},
    "EndTransaction": {v2.INVALID_TRANSACTION_ID},
    "RecallMessage": {v2.BAD_REQUEST},
    "NotifyClientTermination": {v2.OK},
}


@pytest.mark.parametrize("seed", range(4))
def test_calls_are_served_in_any_order_without_settings(bed: MessagingBed, seed: int) -> None:
    """Each client is new, and has said nothing of itself; a Python consumer receives so."""
    topic, group = bed.topic(), v2.Resource(name=f"any-order-{seed}")
    calls = list(every_call(topic, group).items())
    random.Random(seed).shuffle(calls)
    client = (("x-mq-client-id", f"new-{seed}"),)
    for method, request in calls:
        codes = codes_of(bed.call(method, request, client))
        assert codes <= EXPECTED[method], method


def test_who_does_not_say_who_it_is_is_served_where_nothing_is_kept_of_it(
    bed: MessagingBed,
) -> None:
    topic, group = bed.topic(), v2.Resource(name="nobody")
    for method, request in every_call(topic, group).items():
        codes = codes_of(bed.call(method, request, ()))
        wanted = EXPECTED[method]
        if method == "NotifyClientTermination":
            wanted = {v2.CLIENT_ID_REQUIRED}
        assert codes <= wanted, method


def test_an_id_that_is_too_long_is_refused_by_every_call_that_keeps_it(bed: MessagingBed) -> None:
    topic, group = bed.topic(), v2.Resource(name="long")
    client = (("x-mq-client-id", "x" * 5_000),)
    for method in ("Heartbeat", "ReceiveMessage", "NotifyClientTermination"):
        codes = codes_of(bed.call(method, every_call(topic, group)[method], client))
        assert codes == {v2.BAD_REQUEST}, method
    settings = service_pb2.TelemetryCommand(
        settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
    )
    answers = list(bed.stub.Telemetry(iter([settings]), metadata=client, timeout=30))
    assert [answer.status.code for answer in answers] == [v2.BAD_REQUEST]


# ---- what a request holds


def test_enums_that_nobody_has_defined(bed: MessagingBed) -> None:
    """Where it matters they are refused by their code; where it does not they are passed over."""
    topic, group, unknown = bed.topic("MIXED"), v2.Resource(name="enums"), 99
    codes = {
        "message_type": bed.send(topic, message_type=unknown).code,
        "digest": bed.send(
            topic, body_digest=v2.Digest(type=unknown, checksum="0")  # type: ignore[arg-type]
        ).code,
        "encoding": bed.send(topic, body_encoding=unknown).code,
        "filter": codes_of(
            bed.call(
                "ReceiveMessage",
                receive_request(
                    topic, group, filter_expression=v2.FilterExpression(type=unknown)  # type: ignore[arg-type]
                ),
            )
        ).pop(),
        "permission": codes_of(
            bed.call(
                "ReceiveMessage",
                receive_request(
                    topic,
                    group,
                    message_queue=v2.MessageQueue(topic=topic, permission=unknown),  # type: ignore[arg-type]
                ),
            )
        ).pop(),
        "client_type": bed.call(
            "Heartbeat", service_pb2.HeartbeatRequest(client_type=unknown)  # type: ignore[arg-type]
        ).status.code,
        "resolution": bed.call(
            "EndTransaction",
            service_pb2.EndTransactionRequest(
                topic=topic, message_id="01", transaction_id="01", resolution=unknown  # type: ignore[arg-type]
            ),
        ).status.code,
        "scheme": bed.call(
            "QueryRoute",
            service_pb2.QueryRouteRequest(
                topic=topic,
                endpoints=v2.Endpoints(scheme=unknown, addresses=ENDPOINTS.addresses),  # type: ignore[arg-type]
            ),
        ).status.code,
    }  # fmt: skip
    assert codes == {
        "message_type": v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        "digest": v2.OK,
        "encoding": v2.OK,
        "filter": v2.ILLEGAL_FILTER_EXPRESSION,
        "permission": v2.OK,
        "client_type": v2.OK,
        "resolution": v2.OK,  # it is left pending, as by a client that does not know
        "scheme": v2.ILLEGAL_ACCESS_POINT,
    }


@pytest.mark.parametrize(
    ("expression", "position"), [("price >", 8), ("price = 1 AND AND", 15), ("name = 'open", 8)]
)
def test_a_filter_with_a_fault_is_refused_with_its_position(
    bed: MessagingBed, expression: str, position: int
) -> None:
    topic, group = bed.topic(), v2.Resource(name="filters")
    assert bed.send(topic).code == v2.OK
    wrong = v2.FilterExpression(type=v2.SQL, expression=expression)
    [answer] = bed.call("ReceiveMessage", receive_request(topic, group, filter_expression=wrong))

    assert answer.status.code == v2.ILLEGAL_FILTER_EXPRESSION
    assert f"at character {position}" in answer.status.message, answer.status.message
    assert len(bed.receive(topic, group)) == 1  # nothing was leased


def forged(handle: str) -> list[str]:
    """Return handles that nobody was given, each nearly a good one."""
    dice = random.Random(7)
    letters = string.ascii_letters + string.digits
    made = ["".join(dice.choices(letters, k=len(handle)))]
    for place in (0, len(handle) // 2, len(handle) - 1):
        other = "A" if handle[place] != "A" else "B"
        made.append(handle[:place] + other + handle[place + 1 :])
    return [*made, handle[:-1], handle + "A", "", "é" * len(handle)]


def test_forged_handles_are_refused_and_the_lease_holds(bed: MessagingBed) -> None:
    topic, group, handle = bed.lease_one()
    for each in forged(handle):
        codes = {call(topic, group, each) for call in (bed.acknowledge, bed.change, bed.give_up)}
        assert codes == {v2.INVALID_RECEIPT_HANDLE}, each
    assert bed.acknowledge(topic, group, handle) == v2.OK


def test_handles_outlast_a_restart_of_the_reader(bed: MessagingBed) -> None:
    topic, group = bed.topic(), v2.Resource(name="restarted")
    for number in range(3):
        assert bed.send(topic, b"%d" % number).code == v2.OK
    leased: dict[bytes, str] = {}
    while len(leased) < 3:
        for each in bed.receive(topic, group):
            leased[each.body] = each.system_properties.receipt_handle
    assert bed.acknowledge(topic, group, leased[b"0"]) == v2.OK
    bed.restart_reader()
    until(lambda: bed.acknowledge(topic, group, leased[b"1"]) == v2.OK)  # it is connected again
    assert bed.acknowledge(topic, group, leased[b"0"]) == v2.INVALID_RECEIPT_HANDLE
    assert bed.acknowledge(topic, group, leased[b"1"]) == v2.INVALID_RECEIPT_HANDLE
    assert bed.change(topic, group, leased[b"2"]) == v2.OK
    [again] = bed.receive(topic, group)
    assert (again.body, again.system_properties.delivery_attempt) == (b"2", 2)
    assert bed.acknowledge(topic, group, again.system_properties.receipt_handle) == v2.OK


def test_a_stream_of_silence_costs_its_client_nothing(bed: MessagingBed) -> None:
    """It stays open, its client is served meanwhile, and the first settings are answered however late."""
    topic, group = bed.topic(), v2.Resource(name="silent")
    said: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stream = bed.stub.Telemetry(iter(said.get, None), metadata=CLIENT, timeout=60)
    stream.initial_metadata()  # it is open
    assert bed.send(topic).code == v2.OK
    [received] = bed.receive(topic, group)
    handle = received.system_properties.receipt_handle
    assert bed.acknowledge(topic, group, handle) == v2.OK
    said.put(service_pb2.TelemetryCommand())  # nothing in it
    said.put(
        service_pb2.TelemetryCommand(
            settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[topic]))
        )
    )
    assert next(stream).status.code == v2.OK
    said.put(None)
    assert list(stream) == []


@pytest.mark.parametrize("seed", range(3))
def test_garbage_ends_its_stream_and_the_client_opens_another(bed: MessagingBed, seed: int) -> None:
    dice = random.Random(seed)
    client = (("x-mq-client-id", f"garbage-{seed}"),)
    raw = bed.channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")
    settings = service_pb2.TelemetryCommand(
        settings=v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())
    ).SerializeToString()
    for _ in range(20):
        answers = raw(iter([settings, b"\xff" + dice.randbytes(200)]), metadata=client, timeout=30)
        assert service_pb2.TelemetryCommand.FromString(next(answers)).status.code == v2.OK
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    [answer] = raw(iter([settings]), metadata=client, timeout=30)
    assert service_pb2.TelemetryCommand.FromString(answer).status.code == v2.OK
