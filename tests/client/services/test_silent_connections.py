"""Connections over which no answer comes any more: what is stored is stored once, and the call answered over another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from slow_link import SlowLink
from steps_to_try import cases_to_try
from three_services import ThreeServices

from penstock import Client, DeadlineExceeded, RecordBatch

TIMEOUT_S = 6.0  # the first attempt has half of it


@pytest.fixture(name="link")
def _link(services: ThreeServices) -> Iterator[SlowLink]:
    with SlowLink(services.running.writer, 0) as link:
        yield link


def silence(link: SlowLink) -> None:
    """Have no answer come over the connections that there are."""
    link.mute_count = link.connection_count


def single(client: Client, link: SlowLink, topic: str, body: bytes) -> None:
    silence(link)
    assert client.produce(topic, body, queue_id=0).repeated


def batch(client: Client, link: SlowLink, topic: str, body: bytes) -> None:
    records = RecordBatch(topic, queue_id=0)
    records.add(body)
    silence(link)
    assert client.produce_batch(records).repeated


def stream(client: Client, link: SlowLink, topic: str, body: bytes) -> None:
    with client.producer(delivery_timeout_s=2 * TIMEOUT_S, linger_ms=0) as producer:
        producer.send(topic, b"connects", queue_id=1).result(TIMEOUT_S)
        silence(link)
        assert producer.send(topic, body, queue_id=0).result(2 * TIMEOUT_S).repeated


def half(client: Client, link: SlowLink, topic: str, body: bytes) -> None:
    with client.transaction(topic) as transaction:
        silence(link)
        transaction.send(body, queue_id=0)


def commit(client: Client, link: SlowLink, topic: str, body: bytes) -> None:
    transaction = client.transaction(topic)
    transaction.send(body, queue_id=0)
    silence(link)
    ended = transaction.commit()
    assert ended is not None
    assert ended.already


def bodies(client: Client, topic: str) -> list[bytes]:
    return sorted(record.body for record in client.consume(topic, follow=False))


@pytest.mark.parametrize("send", cases_to_try([batch, stream, commit, single, half], 3))
def test_what_has_no_answer_is_answered_over_another_connection_and_stored_once(
    client: Client, topic: str, link: SlowLink, send: Callable[[Client, SlowLink, str, bytes], None]
) -> None:
    with Client(writer=link.address, timeout_s=TIMEOUT_S) as far:
        far.produce(topic, b"connects", queue_id=1)
        send(far, link, topic, b"x")
        assert far.produce(topic, b"y", queue_id=0).repeated is False
    assert [body for body in bodies(client, topic) if body != b"connects"] == [b"x", b"y"]


def test_a_call_that_is_not_known_by_the_writer_is_made_once(
    client: Client, topic: str, link: SlowLink
) -> None:
    with Client(writer=link.address, timeout_s=2) as far:
        far.describe_topic(topic)
        silence(link)
        with pytest.raises(DeadlineExceeded):
            far.create_topic(f"{topic}-2", queues=1)
        assert link.connection_count == 1
