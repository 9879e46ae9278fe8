"""Queues that are taken from a topic while clients send to it: what they knew of it is asked for again."""

from __future__ import annotations

import pytest
from faulty_penstock import FaultyPenstock

from penstock import Client, DeliveryFailed, QueueNotFound


def test_a_producer_chooses_among_the_queues_that_are_left(
    client: Client, faulty: FaultyPenstock
) -> None:
    with client.producer(linger_ms=0) as producer:
        producer.send("orders", b"before").result(30)
        faulty.direct.delete_topic("orders")
        faulty.direct.create_topic("orders", queues=1)
        failed = None
        while failed is None:  # the queue that is left has its turn, too
            failed = producer.send("orders", b"refused").exception(30)
        assert isinstance(failed, QueueNotFound)
        after = [producer.send("orders", b"%d" % n).result(30) for n in range(8)]
        with pytest.raises(DeliveryFailed):
            producer.flush()
    assert {each.queue_id for each in after} == {0}
