"""A topic or a group is deleted under what is pending of it: the documented status, and nothing of it for who comes after."""

from __future__ import annotations

import time
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from messaging_bed import MessagingBed, message, receive_request
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2

SOON_S = 2


def entry_of(bed: MessagingBed, sent: v2.Message) -> Any:
    answer = bed.send_all(sent)
    assert answer.status.code == v2.OK, answer.status
    return answer.entries[0]


def delayed(topic: v2.Resource, seconds: int) -> v2.Message:
    at = Timestamp(seconds=int(time.time()) + seconds)
    return message(topic, b"later", message_type=v2.DELAY, delivery_timestamp=at)


@pytest.mark.parametrize("is_made_again", [False, True], ids=["gone", "made again"])
def test_a_topic_with_leases_delayed_and_half_messages(
    bed: MessagingBed, is_made_again: bool
) -> None:
    topic, group = bed.topic("MIXED"), v2.Resource(name=f"deleted-topic-{is_made_again}")
    assert bed.send(topic, b"leased").code == v2.OK
    [leased] = bed.receive(topic, group)
    handle = leased.system_properties.receipt_handle
    recall = entry_of(bed, delayed(topic, 60)).recall_handle
    entry_of(bed, delayed(topic, SOON_S))
    due_s = time.time() + SOON_S
    halves = [
        entry_of(bed, message(topic, b"half", message_type=v2.TRANSACTION)).transaction_id
        for _ in range(2)
    ]
    bed.client.delete_topic(topic.name)
    if is_made_again:
        bed.client.create_topic(topic.name, queues=2, attributes={"message.type": "MIXED"})
    else:
        for method, request in {
            "SendMessage": service_pb2.SendMessageRequest(messages=[message(topic)]),
            "RecallMessage": service_pb2.RecallMessageRequest(topic=topic, recall_handle=recall),
        }.items():
            until(lambda m=method, r=request: bed.call(m, r).status.code == v2.TOPIC_NOT_FOUND)  # type: ignore[misc]
        [refused] = bed.call("ReceiveMessage", receive_request(topic, group))
        assert refused.status.code == v2.TOPIC_NOT_FOUND
    assert bed.end(topic.name, halves[0], v2.COMMIT) == v2.TOPIC_NOT_FOUND
    assert [bed.end(topic.name, each, v2.ROLLBACK) for each in halves] == [v2.OK, v2.OK]
    if is_made_again:
        until(lambda: bed.send(topic, b"new").code == v2.OK)
    until(lambda: time.time() > due_s + 1)
    assert bed.client.timers().topic_deleted_count > 0
    if not is_made_again:
        bed.client.create_topic(topic.name, queues=2, attributes={"message.type": "MIXED"})
        until(lambda: bed.send(topic, b"new").code == v2.OK)
    received: list[v2.Message] = []
    until(lambda: received.extend(bed.receive(topic, group)) or bool(received))  # type: ignore[func-returns-value]
    assert [(each.body, each.system_properties.delivery_attempt) for each in received] == [
        (b"new", 1)
    ]
    assert bed.acknowledge(topic, group, handle) == v2.INVALID_RECEIPT_HANDLE  # it was another's
    assert bed.acknowledge(topic, group, received[0].system_properties.receipt_handle) == v2.OK
    short = Duration(seconds=1)
    assert bed.receive(topic, group, long_polling_timeout=short) == []
    [queue] = [each for each in bed.client.describe_group(group.name).queues if each.max_offset]
    assert (queue.lag, queue.leased, queue.waiting) == (0, 0, 0)


def test_a_group_with_leases_and_messages_that_wait(bed: MessagingBed) -> None:
    """Who receives after it is a new group of that name: it begins at the oldest message."""
    topic, group = bed.topic(), v2.Resource(name="deleted-group")
    for number in range(3):
        assert bed.send(topic, b"%d" % number).code == v2.OK
    handles: dict[bytes, str] = {}
    while len(handles) < 3:
        handles |= {
            each.body: each.system_properties.receipt_handle for each in bed.receive(topic, group)
        }

    def codes() -> set[int]:
        calls = (bed.acknowledge, bed.change, bed.give_up)
        return {call(topic, group, handles[b"2"]) for call in calls}

    assert bed.acknowledge(topic, group, handles[b"0"]) == v2.OK
    assert bed.change(topic, group, handles[b"1"], 3_600) == v2.OK  # it waits
    bed.client.delete_group(group.name)
    assert codes() == {v2.INVALID_RECEIPT_HANDLE}
    bed.restart_reader()  # what was forgotten stays so
    until(lambda: bed.client.reader_status() is not None)
    received: dict[bytes, int] = {}
    until(
        lambda: (
            received.update(
                (each.body, each.system_properties.delivery_attempt)
                for each in bed.receive(topic, group)
            )
            or len(received) == 3
        )
    )  # type: ignore[func-returns-value]
    assert received == {b"0": 1, b"1": 1, b"2": 1}
    assert codes() == {v2.INVALID_RECEIPT_HANDLE}
