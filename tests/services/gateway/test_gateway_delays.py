"""Delayed messages of RocketMQ's clients: sent, delivered when they are due, taken back."""

from __future__ import annotations

import time

import pytest
from messaging_bed import MessagingBed, message
from real_processes import until

from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.format.recall_handle import RecallHandle, decode_recall_handle

DAY_MS = 86_400_000


def later(topic: str, deliver_ms: int) -> v2.Message:
    made = message(v2.Resource(name=topic), b"later", message_type=v2.DELAY)
    made.system_properties.delivery_timestamp.FromMilliseconds(deliver_ms)
    return made


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def recall(bed: MessagingBed, topic: str, handle: str) -> service_pb2.RecallMessageResponse:
    request = service_pb2.RecallMessageRequest(topic=v2.Resource(name=topic), recall_handle=handle)
    answer = bed.call("RecallMessage", request)
    assert isinstance(answer, service_pb2.RecallMessageResponse)
    return answer


def stored(bed: MessagingBed, topic: str) -> int:
    return sum(bed.ends(topic).values())


def test_a_delayed_message_comes_and_another_is_recalled(bed: MessagingBed) -> None:
    bed.create("later", 1, "DELAY")
    deliver_ms = now_ms() + 3_000
    recalled_ms = deliver_ms + 60_000  # so that a slow machine has time for the recall
    sent = [later("later", at) for at in (deliver_ms, recalled_ms, deliver_ms)]
    message_id = sent[1].system_properties.message_id
    answer = bed.send_all(*sent)
    assert [entry.status.code for entry in answer.entries] == [v2.OK] * 3
    handle = decode_recall_handle(answer.entries[1].recall_handle)
    assert (handle.topic, handle.unique_key) == ("later", message_id)
    assert handle.recall_ms == (recalled_ms - 1) // 1_000 * 1_000 + 1
    taken_back = recall(bed, "later", answer.entries[1].recall_handle)
    assert (taken_back.status.code, taken_back.message_id) == (v2.OK, message_id)
    until(lambda: stored(bed, "later") == 2)
    until(lambda: bed.client.timers().delivered_count >= 2)  # counted after they are stored
    assert now_ms() >= deliver_ms
    late = recall(bed, "later", answer.entries[0].recall_handle)
    assert late.status.code == v2.BAD_REQUEST


def test_the_past_is_now_and_has_no_handle(bed: MessagingBed) -> None:
    bed.create("past", 1, "MIXED")
    answer = bed.send_all(later("past", now_ms() - 5_000))
    assert (answer.entries[0].recall_handle, answer.entries[0].offset) == ("", 0)
    until(lambda: stored(bed, "past") == 1)


def test_too_far_and_the_wrong_topic_are_refused(bed: MessagingBed) -> None:
    bed.create("typed", 1, "DELAY")
    far = bed.send_all(later("typed", now_ms() + 41 * DAY_MS))
    assert far.status.code == v2.ILLEGAL_DELIVERY_TIME
    wrong = bed.send_all(later("orders", now_ms() + 1_000))
    assert wrong.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


@pytest.mark.parametrize(
    "handle",
    [
        "", "###", "djE=",
        RecallHandle("orders", "penstock", now_ms() + DAY_MS, "KEY").encode(),
        RecallHandle("handles", "another-broker", now_ms() + DAY_MS, "KEY").encode(),
        RecallHandle("handles", "penstock", 1, "KEY").encode(),
    ],
    ids=["none", "no base64", "cut", "another topic", "another broker", "late"],
)  # fmt: skip
def test_a_handle_that_is_wrong_late_or_foreign_is_refused(bed: MessagingBed, handle: str) -> None:
    if "handles" not in {topic.name for topic in bed.client.topics()}:
        bed.create("handles", 1, "DELAY")
    assert recall(bed, "handles", handle).status.code == v2.BAD_REQUEST
