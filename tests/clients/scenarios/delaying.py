"""Messages that are delivered later, and taken back before."""

from __future__ import annotations

import time

from drivers import ClientFailed
from lab import Lab

SOON_MS = 4_000


def delay(lab: Lab) -> str:
    """Delayed messages come when they are due, not before."""
    topic = lab.topic("DELAY")
    consumer = lab.simple(topic, lab.group())
    deliver_ms = int(time.time() * 1000) + SOON_MS
    sent = lab.producer(topic).send_later("a", "b", "c", deliver_ms=deliver_ms)
    received = consumer.receive_until(3, within_s=30)
    late_ms = time.time() * 1000 - deliver_ms

    if "recall" not in lab.language.lacks:
        assert all(recall_handle for _, recall_handle in sent)
    assert sorted(m.id for m in received) == sorted(message_id for message_id, _ in sent)
    assert late_ms >= 0
    return f"{late_ms:.0f} ms late"


def delay_passed(lab: Lab) -> None:
    """A time that has passed delivers at once."""
    topic = lab.topic("DELAY")
    [(message_id, _)] = lab.producer(topic).send_later(
        "past", deliver_ms=int(time.time() * 1000) - 60_000
    )
    [received] = lab.simple(topic, lab.group()).receive_until(1)

    assert received.id == message_id


def recall(lab: Lab) -> None:
    """A message that is recalled does not come; the others do, and are too late to recall then."""
    topic = lab.topic("DELAY")
    consumer = lab.simple(topic, lab.group())
    producer = lab.producer(topic)
    deliver_ms = int(time.time() * 1000) + SOON_MS
    sent = producer.send_later("a", "b", "c", deliver_ms=deliver_ms)
    recalled_id, recall_handle = sent[1]
    assert producer.recall(recall_handle) == recalled_id
    received = consumer.receive_until(2, within_s=30)
    consumer.ack(*received)
    consumer.receive_nothing(2)

    assert {m.id for m in received} == {sent[0][0], sent[2][0]}
    for handle in (sent[0][1], "no handle"):
        try:
            producer.recall(handle)
        except ClientFailed:
            continue
        raise AssertionError(f"{handle} is recalled")
