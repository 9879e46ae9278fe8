"""What a console or a report asks: queues of many topics, dead letters, who is connected, how much went in and out."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from penstock import Client, DeadLetterCount, InvalidArgument, TopicNotFound
from services.testing import running_store

numbers = count()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    home: Path = tmp_path_factory.mktemp("looking")
    with running_store(home / "store") as store, store.client() as opened:
        yield opened


@pytest.fixture
def topic(client: Client) -> str:
    name = f"looked-at-{next(numbers)}"
    client.create_topic(name, queues=2)
    return name


def test_stored_queues_are_those_with_messages_of_the_topics_that_are_named(
    client: Client, topic: str
) -> None:
    client.create_topic(f"{topic}-empty", queues=1)
    stored = [client.produce(topic, b"x", queue_id=1) for _ in range(3)]
    [queue] = client.stored_queues([topic, f"{topic}-empty", "nowhere"])

    assert (queue.topic, queue.queue_id, queue.min_offset, queue.max_offset) == (topic, 1, 0, 3)
    assert queue.min_commit_offset == stored[0].commit_offset
    assert queue.end_commit_offset > stored[-1].commit_offset
    assert queue in client.stored_queues()


def test_what_went_in_and_out_is_counted(client: Client, topic: str) -> None:
    into, out = client.writer_status().stored_record_count, client.reader_status()
    for _ in range(5):
        client.produce(topic, b"x" * 100, queue_id=0)
    assert len(client.pull(topic, 0, 0).records) == 5
    client.receive(topic, group="counted", max_messages=2)
    after = client.reader_status()

    assert client.writer_status().stored_record_count == into + 5
    assert after.sent_record_count == out.sent_record_count + 7
    assert after.sent_bytes >= out.sent_bytes + 700


def test_dead_letters_are_counted_and_sent_again_each_once(client: Client, topic: str) -> None:
    group = f"gives-up-{topic}"
    client.create_group(group)
    for number in range(3):
        client.produce(topic, b"%d" % number, keys=[f"k{number}"], tag="t", properties={"a": "b"})
    for _ in range(3):
        client.dead_letter(client.receive(topic, group=group, max_messages=1, wait_ms=10_000))

    assert DeadLetterCount(group=group, messages=3, to_resend=3) in client.dead_letter_counts()
    assert client.resend_dead_letters(group, most=2) == 2
    assert DeadLetterCount(group=group, messages=3, to_resend=1) in client.dead_letter_counts()
    assert client.resend_dead_letters(group) == 1
    assert client.resend_dead_letters(group) == 0
    assert client.resend_dead_letters(group, again=True, topic=topic) == 3
    again = list(client.query_by_key(topic, "k0"))
    assert [(record.tag, record.properties["a"], record.body) for record in again] == [
        ("t", "b", b"0")
    ] * 3
    with pytest.raises(TopicNotFound):
        client.resend_dead_letters("nobody")


def test_one_message_is_sent_again_where_it_came_from(client: Client, topic: str) -> None:
    group = f"gives-up-{topic}"
    client.create_group(group)
    client.produce(topic, b"bill", keys=["bill-1"])
    client.dead_letter(client.receive(topic, group=group, wait_ms=10_000))
    letter = client.pull(f"%DLQ%{group}", 0, 0).records[0]
    plain = client.produce(f"%DLQ%{group}", b"by hand")

    assert client.resend(letter).topic == topic
    with pytest.raises(InvalidArgument, match="does not say where it comes from"):
        client.resend(client.message(plain.message_id))
    original = client.pull(topic, 0, 0).records or client.pull(topic, 1, 0).records
    assert client.resend(original[0]).topic == topic


def test_clients_of_rocketmq_are_those_that_the_gateway_knows(client: Client) -> None:
    assert client.connected_clients("nobody") == []
