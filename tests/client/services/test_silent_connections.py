"""Connections over which no answer comes any more: what is stored is stored once, and the call answered over another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from slow_link import SlowLink
from steps_to_try import cases_to_try
from three_services import ThreeServices

from penstock import AsyncClient, Client, DeadlineExceeded, RecordBatch
from penstock.calls.call import Attempts

PATIENCE_S = 60.0
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


@pytest.fixture(name="lose")
def _lose(link: SlowLink, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have no answer come any more; the next attempt waits for a second, all others for very long."""

    def lose() -> None:
        silence(link)
        waits_s = iter([1.0])
        monkeypatch.setattr(Attempts, "answer_s", lambda _: next(waits_s, 10 * PATIENCE_S))

    return lose


def test_with_a_batch_that_has_no_answer_all_leave_its_connection(
    topic: str, link: SlowLink, lose: Callable[[], None]
) -> None:
    with Client(writer=link.address) as far, far.producer(linger_ms=0) as producer:
        producer.send(topic, b"connects", queue_id=0).result(PATIENCE_S)
        lose()
        handles = [producer.send(topic, b"x", queue_id=queue_id) for queue_id in range(4)]
        assert all(handle.result(PATIENCE_S).repeated for handle in handles)


async def test_with_a_batch_that_has_no_answer_all_leave_its_connection_in_asyncio(
    topic: str, link: SlowLink, lose: Callable[[], None]
) -> None:
    async with AsyncClient(writer=link.address) as far, far.producer(linger_ms=0) as producer:
        await (await producer.send(topic, b"connects", queue_id=0)).result(PATIENCE_S)
        lose()
        handles = [await producer.send(topic, b"x", queue_id=queue_id) for queue_id in range(4)]
        assert all([(await handle.result(PATIENCE_S)).repeated for handle in handles])


def test_a_call_that_is_not_known_by_the_writer_is_made_once(
    client: Client, topic: str, link: SlowLink
) -> None:
    with Client(writer=link.address, timeout_s=2) as far:
        far.describe_topic(topic)
        silence(link)
        with pytest.raises(DeadlineExceeded):
            far.create_topic(f"{topic}-2", queues=1)
        assert link.connection_count == 1
