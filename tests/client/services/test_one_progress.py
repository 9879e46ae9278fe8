"""A group is one thing: commits, leases and resets see and set one progress."""

from __future__ import annotations

import pytest

from penstock import Client, FailedPrecondition
from penstock.leased import Received


@pytest.fixture
def group(topic: str) -> str:
    return f"of-{topic}"


def put(client: Client, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    for body in bodies:
        client.produce(topic, body, queue_id=queue_id)


def consumed(client: Client, topic: str, group: str) -> list[bytes]:
    with client.consume(topic, group=group, follow=False) as consumer:
        return [record.body for record in consumer]


def bodies(received: Received) -> list[bytes]:
    return [each.body for each in received.records]


def lag(client: Client, topic: str, group: str) -> int:
    return sum(offset.lag for offset in client.offsets(group, topic))


def test_a_group_goes_on_by_commits_after_a_reset(client: Client, topic: str, group: str) -> None:
    put(client, topic, b"0", b"1", b"2")
    assert consumed(client, topic, group) == [b"0", b"1", b"2"]

    client.reset_group(group, topic, to="earliest")

    assert consumed(client, topic, group) == [b"0", b"1", b"2"]
    assert lag(client, topic, group) == 0
    assert consumed(client, topic, group) == []
    assert sum(queue.lag for queue in client.describe_group(group).queues) == 0


def test_a_reset_of_one_queue_leaves_the_others_to_commits(
    client: Client, topic: str, group: str
) -> None:
    put(client, topic, b"a", queue_id=0)
    put(client, topic, b"b", queue_id=1)
    assert sorted(consumed(client, topic, group)) == [b"a", b"b"]
    client.reset_group(group, topic, to="earliest", queues=[0])
    put(client, topic, b"c", queue_id=1)

    assert sorted(consumed(client, topic, group)) == [b"a", b"c"]
    assert consumed(client, topic, group) == []


def test_a_receive_of_an_empty_topic_leaves_a_group_to_commits(
    client: Client, topic: str, group: str
) -> None:
    assert bodies(client.receive(topic, group=group)) == []
    put(client, topic, b"0", b"1")

    assert consumed(client, topic, group) == [b"0", b"1"]
    assert consumed(client, topic, group) == []
    assert bodies(client.receive(topic, group=group)) == []


def test_a_commit_acknowledges_what_precedes_it(client: Client, topic: str, group: str) -> None:
    put(client, topic, b"0", b"1", b"2", b"3")
    leased = client.receive(topic, group=group, max_messages=3)
    assert bodies(leased) == [b"0", b"1", b"2"]

    client.commit_offset(group, topic, 0, 2)

    (queue,) = [q for q in client.describe_group(group).queues if q.queue_id == 0]
    assert (queue.group_offset, queue.next_offset, queue.leased, queue.lag) == (2, 3, 1, 2)
    refused = client.acknowledge(leased)
    assert [each.problem for each in refused] == ["ACKNOWLEDGED", "ACKNOWLEDGED"]
    assert lag(client, topic, group) == 1


def test_a_lower_commit_sets_a_group_back_whose_members_have_nothing(
    client: Client, topic: str, group: str
) -> None:
    put(client, topic, b"0", b"1", b"2")
    leased = client.receive(topic, group=group, max_messages=2)
    client.acknowledge(leased)

    client.commit_offset(group, topic, 0, 1)

    assert bodies(client.receive(topic, group=group)) == [b"1", b"2"]
    assert lag(client, topic, group) == 2


def test_a_consumer_behind_the_members_of_its_group_does_not_set_them_back(
    client: Client, topic: str, group: str
) -> None:
    put(client, topic, b"0", b"1", b"2")
    behind = client.consume(topic, group=group, auto_commit=False, follow=False)
    assert next(behind).body == b"0"
    client.acknowledge(client.receive(topic, group=group, max_messages=2))
    assert bodies(client.receive(topic, group=group)) == [b"2"]

    with pytest.raises(FailedPrecondition, match="either commit or lease") as refused:
        behind.commit()

    assert refused.value.reason == "GROUP_IN_USE"
    assert lag(client, topic, group) == 1
    client.reset_group(group, topic, to="earliest")
    assert lag(client, topic, group) == 3
