"""A store that was used for everything which metrics are of, and a page of its metrics."""

from __future__ import annotations

import urllib.request
from dataclasses import dataclass

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from penstock import Client, Message, NotFound, RecordBatch


@dataclass(frozen=True)
class MetricsPage:
    text: str
    families: dict[str, Metric]

    @classmethod
    def of(cls, address: str) -> MetricsPage:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            text = answer.read().decode()
        found = list(text_string_to_metric_families(text))
        assert len({family.name for family in found}) == len(found)  # each family stands once
        return cls(text, {family.name: family for family in found})

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of a name that have these labels; there is one at least."""
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, (name, labels)
        return sum(found)


def use(client: Client) -> None:
    """Do what the families are of."""
    client.create_topic("orders", queues=2)
    client.create_topic("parcels", queues=1, attributes={"message.type": "FIFO"})
    for number in range(5):
        client.produce("orders", b"%d" % number, keys=[f"key-{number}"])
    batch = RecordBatch("orders")
    for number in range(20):
        batch.add(b"%d" % number, queue_id=number % 2)
    client.produce_batch(batch)
    client.produce_many([Message(topic="orders", body=b"a"), Message(topic="parcels", body=b"b")])
    with client.producer() as producer:
        for number in range(10):
            producer.send("parcels", b"%d" % number)
    client.produce("orders", b"later", delay=3_600)
    with client.transaction("orders") as transaction:
        transaction.send(b"committed")
    client.transaction("orders").send(b"pending")
    rolled_back = client.transaction("orders")
    rolled_back.send(b"rolled back")
    rolled_back.rollback()
    client.create_group("impatient", retry_max_times=0)
    with client.subscribe("parcels", group="impatient", prefetch=1) as subscription:
        next(subscription).dead_letter()
    for record in client.consume("orders", group="billing", follow=False):
        assert record.topic == "orders"
    with client.subscribe("orders", group="packing", prefetch=3) as subscription:
        for _ in range(2):
            next(subscription).ack()
    with pytest.raises(NotFound):
        client.produce("nowhere", b"")
