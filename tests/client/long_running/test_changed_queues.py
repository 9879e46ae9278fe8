"""Queues that are taken from a topic while clients send to it: what they knew of it is asked for again."""

from __future__ import annotations

import grpc
import pytest
from fake_penstock import FakePenstock, rich_status

from penstock import Client, DeliveryFailed, QueueNotFound

GONE = rich_status(
    grpc.StatusCode.INVALID_ARGUMENT,
    "topic 'orders' has queues 0 to 0, not 3",
    reason="QUEUE_NOT_FOUND",
)


def take_queues(fake: FakePenstock) -> None:
    """Leave one queue to the topic, and refuse the next batch for it."""
    fake.store.topics["orders"] = 1
    fake.store.fail_next("ProduceBatch", GONE)


def test_a_producer_chooses_among_the_queues_that_are_left(
    client: Client, fake: FakePenstock
) -> None:
    with client.producer(linger_ms=0) as producer:
        producer.send("orders", b"before").result(30)
        take_queues(fake)
        with pytest.raises(QueueNotFound):
            producer.send("orders", b"refused").result(30)
        after = [producer.send("orders", b"%d" % n).result(30) for n in range(8)]
        with pytest.raises(DeliveryFailed):
            producer.flush()
    assert {each.queue_id for each in after} == {0}
