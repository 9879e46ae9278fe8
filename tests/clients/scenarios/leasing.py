"""Leases of a simple consumer: acknowledged, run out, changed."""

from __future__ import annotations

import contextlib
import time

from drivers import ClientFailed
from lab import Lab

LEASE_S = 10.0  # the shortest that the protocol allows
LATE_S = 1.0  # a busy machine; its next poll would be later still
TRIES = 3  # a machine that stands still for a moment is not late each time


def simple_ack(lab: Lab) -> None:
    """What is acknowledged never comes again, and a second acknowledgement does no harm."""
    topic, group = lab.topic(), lab.group()
    lab.producer(topic).send_bodies(*(f"n{n}" for n in range(5)))
    consumer = lab.simple(topic, group)
    messages = consumer.receive_until(5, invisible_s=LEASE_S)
    consumer.ack(*messages)
    with contextlib.suppress(ClientFailed):  # refused is as good
        consumer.ack(messages[0])
    consumer.receive_nothing(LEASE_S + 4)


def lease_end(lab: Lab) -> str:
    """A lease that ends wakes the consumer that waits: the message comes with attempt 2, on time."""
    topic, group = lab.topic(), lab.group()
    producer = lab.producer(topic)
    consumer = lab.simple(topic, group, await_s=20)
    for _ in range(TRIES):
        producer.send_bodies("again")
        asked = time.monotonic()
        (first,) = consumer.receive_until(1, invisible_s=LEASE_S)
        (second,) = consumer.receive_until(1, within_s=40, invisible_s=LEASE_S)
        after = second.at - first.at
        with contextlib.suppress(ClientFailed):
            consumer.ack(first)
        consumer.ack(second)

        assert (first.attempt, second.attempt) == (1, 2)
        assert second.id == first.id
        assert second.at - asked >= LEASE_S, f"came {after:.2f} s after a receive for {LEASE_S:g} s"
        if after <= LEASE_S + LATE_S:
            break
    assert after <= LEASE_S + LATE_S, f"came {after:.2f} s after a receive for {LEASE_S:g} s"
    return f"{(after - LEASE_S) * 1000:+.0f} ms"


def change_nack(lab: Lab) -> str:
    """A message given back for one second is there again within 1.2 s, for a consumer that waits."""
    topic, group = lab.topic(), lab.group()
    producer = lab.producer(topic)
    consumer = lab.simple(topic, group, await_s=20)
    for _ in range(TRIES):
        producer.send_bodies("back")
        (first,) = consumer.receive_until(1, invisible_s=60)
        asked = time.monotonic()
        changed = consumer.change(first, 1)
        (second,) = consumer.receive_until(1, within_s=40, invisible_s=60)
        after = second.at - changed
        consumer.ack(second)

        assert second.attempt == 2
        assert second.at - asked >= 0.99, f"came {after:.2f} s after a nack of 1 s"
        if after <= 1.2:
            break
    assert after <= 1.2, f"came {after:.2f} s after a nack of 1 s"
    return f"{after:.2f} s"


def change_extend(lab: Lab) -> None:
    """A lease made longer holds, and an acknowledgement by the handle of the change counts."""
    topic, group = lab.topic(queues=1), lab.group()
    lab.producer(topic).send_bodies("one", "two", "three")
    consumer = lab.simple(topic, group)
    messages = consumer.receive_until(3, invisible_s=LEASE_S)
    for message in messages:
        consumer.change(message, LEASE_S + 10)
    changed = time.monotonic()
    consumer.receive_nothing(LEASE_S + 0.5 - (time.monotonic() - changed))
    consumer.ack(*messages)
    consumer.receive_nothing(8)
