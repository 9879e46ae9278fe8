"""A unit that its record does not confirm: clients ask again until the writer has rebuilt it, and miss nothing."""

from __future__ import annotations

import pytest
from flips import flip_unit
from three_services import ThreeServices

from penstock import Client

COUNT = 60
BAD = 25


@pytest.fixture(name="damaged")
def _damaged(client: Client, topic: str, services: ThreeServices) -> str:
    for n in range(COUNT):
        client.produce(topic, b"%d" % n, queue_id=0)
    assert client.pull(topic, 0, 0).records
    flip_unit(services.store, topic, BAD)
    return topic


def test_a_consumer_misses_nothing(client: Client, damaged: str) -> None:
    read = [record.body for record in client.consume(damaged, queues=[0], follow=False)]
    assert read == [b"%d" % n for n in range(COUNT)]


def test_a_subscription_misses_nothing(client: Client, damaged: str) -> None:
    with client.subscribe(damaged, group="rebuilt", idle_s=5) as messages:
        read = {next(messages).body for _ in range(COUNT)}
    assert read == {b"%d" % n for n in range(COUNT)}
