"""``TrackMessage``: what each group did with one message, with its dead letters and committed offsets."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import grpc
import pytest
from leasing import Consumer, create_group, create_topic, put
from three_services import ThreeServices, three_services

from penstock.v1 import leases_pb2, reader_pb2

numbers = itertools.count()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("tracks") / "store") as running:
        yield running


@pytest.fixture
def topic(services: ThreeServices) -> str:
    name = f"topic-{next(numbers)}"
    create_topic(services, name)
    return name


def tracks(
    services: ThreeServices, topic: str, queue_offset: int
) -> dict[str, leases_pb2.MessageTrack]:
    request = leases_pb2.TrackMessageRequest(topic=topic, queue_id=0, queue_offset=queue_offset)
    found = services.leases.TrackMessage(request, timeout=30).groups
    assert [each.group for each in found] == sorted({each.group for each in found})
    return {each.group: each for each in found}


def letter_body(services: ThreeServices, track: leases_pb2.MessageTrack) -> bytes:
    assert track.state == leases_pb2.DEAD
    assert track.HasField("dead_letter_commit_offset")
    request = reader_pb2.GetMessageRequest(commit_offset=track.dead_letter_commit_offset)
    record = services.reader.GetMessage(request, timeout=30).record
    assert record.topic == f"%DLQ%{track.group}"
    return bytes(record.body)


def test_each_group_that_reads_the_queue_is_named_and_no_other(
    services: ThreeServices, topic: str
) -> None:
    put(services, topic, b"a", b"b")
    create_group(services, f"{topic}-idle")
    slow = Consumer(services, f"{topic}-slow", topic)
    before_ms = time.time_ns() // 1_000_000
    (leased,) = slow.receive(max_messages=1, lease_ms=60_000)
    done = Consumer(services, f"{topic}-done", topic)
    done.acknowledge(*done.receive())
    commit = reader_pb2.CommitOffsetRequest(
        group=f"{topic}-commits", topic=topic, queue_id=0, queue_offset=1
    )
    services.reader.CommitOffset(commit, timeout=30)

    first, second = (tracks(services, topic, each) for each in (0, 1))

    assert {group: each.state for group, each in first.items()} == {
        f"{topic}-commits": leases_pb2.DONE,
        f"{topic}-done": leases_pb2.DONE,
        f"{topic}-slow": leases_pb2.IN_FLIGHT,
    }
    in_flight = first[f"{topic}-slow"]
    assert before_ms + 59_000 < in_flight.until_ms < before_ms + 120_000
    assert in_flight.attempts == leased.attempt == 1
    assert {group: each.state for group, each in second.items()} == {
        f"{topic}-commits": leases_pb2.READY,
        f"{topic}-done": leases_pb2.DONE,
        f"{topic}-slow": leases_pb2.READY,
    }


def test_a_dead_letter_is_found_among_others_of_the_same_key(
    services: ThreeServices, topic: str
) -> None:
    put(services, topic, b"a", b"b", b"c", keys=["k"])
    consumer = Consumer(services, f"{topic}-group", topic)
    a, b, c = consumer.receive()
    consumer.dead_letter(a, b)
    consumer.acknowledge(c)

    found = [tracks(services, topic, each)[consumer.group] for each in (0, 1, 2)]

    assert [letter_body(services, each) for each in found[:2]] == [b"a", b"b"]
    assert found[2].state == leases_pb2.DONE


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"topic": "nowhere"}, grpc.StatusCode.NOT_FOUND),
        ({"queue_id": 9}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"queue_offset": 1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"queue_offset": -1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"commit_offset": 1}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["topic", "queue", "beyond", "negative", "another"],
)
def test_a_message_that_is_not_there_is_refused(
    services: ThreeServices, topic: str, named: dict[str, object], code: grpc.StatusCode
) -> None:
    put(services, topic, b"a")
    request = leases_pb2.TrackMessageRequest(**{"topic": topic, **named})
    with pytest.raises(grpc.RpcError) as refused:
        services.leases.TrackMessage(request, timeout=30)
    assert refused.value.code() is code
