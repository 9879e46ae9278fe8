"""Push consumers whose listeners succeed."""

from __future__ import annotations

import itertools
import time
from collections import Counter

from lab import Lab


def push_concurrent(lab: Lab) -> None:
    """Each of 100 messages calls the listener once."""
    topic = lab.topic()
    producer = lab.producer(topic)
    producer.send_bodies(*(f"before{n}" for n in range(50)))
    consumer = lab.push(topic, lab.group())
    producer.send_bodies(*(f"after{n}" for n in range(50)))
    consumer.wait_calls(100)
    time.sleep(2)

    counts = Counter(m.body for m in consumer.calls)
    assert counts == Counter(f"{when}{n}" for when in ("before", "after") for n in range(50))
    assert {m.attempt for m in consumer.calls} == {1}


def push_orderly(lab: Lab) -> None:
    """Messages of a message group come in order, the next one after the one before has returned."""
    topic = lab.topic("FIFO", queues=2)
    producer = lab.producer(topic)
    consumer = lab.push(topic, lab.group(orderly=True))
    for n in range(10):
        producer.send(
            *(
                {
                    "body": f"{g}:{n}",
                    "message_group": f"group-{g}",
                    "properties": {"sleep_ms": "20"},
                }
                for g in range(4)
            )
        )
    consumer.wait_calls(40, within_s=60)
    consumer.wait_returns(40)

    returned = {id_: at for id_, _, at in consumer.returns}
    for g in range(4):
        mine = [m for m in consumer.calls if m.message_group == f"group-{g}"]
        assert [m.body for m in mine] == [f"{g}:{n}" for n in range(10)]
        for before, after in itertools.pairwise(mine):
            assert returned[before.id] <= after.at, f"{after.body} was handled beside {before.body}"


def two_members(lab: Lab) -> str:
    """Two members of a group share its messages, none twice; what one leaves goes to the other."""
    topic, group = lab.topic(), lab.group()
    producer = lab.producer(topic)
    first, second = lab.push(topic, group), lab.push(topic, group, driver=lab.driver())
    time.sleep(2)
    for n in range(200):
        producer.send({"body": f"n{n}", "properties": {"sleep_ms": "20"}})
    end = time.monotonic() + 30
    while len(first.calls) + len(second.calls) < 200 and time.monotonic() < end:
        time.sleep(0.05)
    shares = len(first.calls), len(second.calls)

    counts = Counter(m.body for m in (*first.calls, *second.calls))
    assert counts == Counter(f"n{n}" for n in range(200))
    assert min(shares) >= 20, f"shares {shares}"

    second.stop()
    producer.send_bodies(*(f"later{n}" for n in range(20)))
    first.wait_calls(shares[0] + 20, within_s=40)
    return f"{shares[0]} + {shares[1]}"


def tag_filter(lab: Lab) -> None:
    """A consumer gets the tags that it asked for, and no others."""
    topic = lab.topic()
    producer = lab.producer(topic)
    for n in range(5):
        for tag in ("red", "green", "blue"):
            producer.send({"body": f"{tag}{n}", "tag": tag})
        producer.send_bodies(f"bare{n}")
    consumer = lab.simple(topic, lab.group(), filter={"tag": "red || blue"})
    messages = consumer.receive_until(10)
    consumer.ack(*messages)

    assert sorted(m.body for m in messages) == sorted(
        f"{tag}{n}" for tag in ("red", "blue") for n in range(5)
    )
    consumer.receive_nothing(1)
