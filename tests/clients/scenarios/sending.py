"""Sends of every kind, and how what was sent is read back."""

from __future__ import annotations

import time

from drivers import ClientFailed
from lab import Lab

BODY_MAX = 4 << 20
TOPIC_NOT_FOUND = 40402


def send_normal(lab: Lab) -> None:
    """Messages with tag, keys and properties come back as they were sent."""
    topic = lab.topic()
    began_ms = time.time() * 1000
    ids = [
        lab_id
        for producer in (lab.producer(topic),)
        for n in range(10)
        for lab_id in producer.send(
            {
                "body": f"n{n}",
                "tag": "paid",
                "keys": [f"k{n}", "all"],
                "properties": {"colour": "blå", "n": str(n)},
            }
        )
    ]
    messages = lab.simple(topic, lab.group()).receive_until(10)

    assert len(set(ids)) == 10
    assert sorted(m.id for m in messages) == sorted(ids)
    for message in messages:
        n = message.body.removeprefix("n")
        assert message.id == ids[int(n)]
        assert message.fields["topic"] == topic
        assert message.fields["tag"] == "paid"
        assert message.fields["keys"] == sorted([f"k{n}", "all"])
        assert {"colour": "blå", "n": n}.items() <= message.fields["properties"].items()
        assert message.attempt == 1
        assert message.message_group is None
        born_ms = message.fields.get("born_ms")
        assert born_ms is None or abs(born_ms - began_ms) < 120_000


def send_fifo(lab: Lab) -> None:
    """Messages of a message group are stored in order, each group in one queue."""
    topic = lab.topic("FIFO")
    producer = lab.producer(topic)
    for n in range(10):
        producer.send(*({"body": f"{g}:{n}", "message_group": f"group-{g}"} for g in range(4)))
    # One receive draws a queue from its start: in it, groups are in order.
    messages = lab.simple(topic, lab.group()).receive_until(40)

    for g in range(4):
        mine = [m for m in messages if m.message_group == f"group-{g}"]
        assert [m.body for m in mine] == [f"{g}:{n}" for n in range(10)]


def send_together(lab: Lab) -> None:
    """Several messages in one request: one receipt each, all stored."""
    topic = lab.topic()
    ids = lab.producer(topic).send(*({"body": f"b{n}"} for n in range(10)), together=True)
    messages = lab.simple(topic, lab.group()).receive_until(10)

    assert sorted(m.body for m in messages) == sorted(f"b{n}" for n in range(10))
    assert [m.id for m in sorted(messages, key=lambda m: m.body)] == ids


def body_4mib(lab: Lab) -> None:
    """A body of 4 MiB passes in both directions; one byte more is refused."""
    topic = lab.topic()
    producer = lab.producer(topic)
    producer.send({"size": BODY_MAX})
    try:
        producer.send({"size": BODY_MAX + 1})
    except ClientFailed:
        pass
    else:
        raise AssertionError("4 MiB and a byte were taken")
    (message,) = lab.simple(topic, lab.group()).receive_until(1)

    assert message.fields["size"] == BODY_MAX
    assert message.fields["pattern"]


def unknown_topic(lab: Lab) -> str:
    """A topic that does not exist is refused, by its code where the client shows it."""
    try:
        lab.producer("no-such-topic").send_bodies("lost")
    except ClientFailed as failure:
        code = failure.code or (TOPIC_NOT_FOUND if str(TOPIC_NOT_FOUND) in str(failure) else None)
        assert code in (None, TOPIC_NOT_FOUND)
        assert code or "topic" in str(failure).lower(), str(failure)
        return str(code or "")
    raise AssertionError("a message to a topic that does not exist was taken")


def tls(lab: Lab) -> None:
    """Sends and receives over TLS, which Java and Go ask for by default, with credentials."""
    topic = lab.topic()
    lab.producer(topic).send_bodies("over TLS")
    consumer = lab.simple(topic, lab.group())
    (message,) = consumer.receive_until(1)
    consumer.ack(message)

    assert message.body == "over TLS"


def sql_filter(lab: Lab) -> None:
    """A simple consumer with an SQL92 filter gets what it matches and nothing else."""
    topic = lab.topic()
    producer = lab.producer(topic)
    for n in range(10):
        producer.send(
            {
                "body": f"n{n}",
                "properties": {"price": str(n), "region": "north" if n % 2 else "south"},
            }
        )
    producer.send({"body": "bare"})
    wanted = {"sql": "price BETWEEN 3 AND 8 AND region = 'north'"}
    consumer = lab.simple(topic, lab.group(), filter=wanted)
    messages = consumer.receive_until(3)
    consumer.ack(*messages)

    assert sorted(m.body for m in messages) == ["n3", "n5", "n7"]
    consumer.receive_nothing(1)
