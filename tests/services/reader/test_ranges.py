"""What a read of everything asks: every queue at once, and pulls that end at an offset."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from three_services import ThreeServices, three_services

from penstock.v1 import common_pb2, reader_pb2, writer_pb2
from storage.format.record import decode_record

COUNT = 300  # messages in queue 1 of "orders", tags A and B in turn


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("ranges") / "store") as running:
        for topic, queues in (("orders", 4), ("empty", 1), ("grows", 1)):
            running.writer.CreateTopic(
                writer_pb2.CreateTopicRequest(name=topic, queue_count=queues), timeout=20
            )
        put(running, "orders", *(b"m%d" % number for number in range(COUNT)), queue_id=1)
        yield running


def put(services: ThreeServices, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    messages = [
        common_pb2.Message(topic=topic, body=body, queue_id=queue_id, tag="AB"[number % 2])
        for number, body in enumerate(bodies)
    ]
    services.writer.Produce(writer_pb2.ProduceRequest(messages=messages), timeout=20)


def listed(services: ThreeServices, **fields: Any) -> reader_pb2.ListQueuesResponse:
    return services.reader.ListQueues(reader_pb2.ListQueuesRequest(**fields), timeout=20)


def streamed(services: ThreeServices, **fields: Any) -> list[reader_pb2.PullResponse]:
    request = reader_pb2.PullStreamRequest(**{"topic": "orders", "queue_id": 1, **fields})
    return list(services.reader.PullStream(request, timeout=20))


def bodies(answers: list[reader_pb2.PullResponse]) -> list[bytes]:
    found = []
    for answer in answers:
        position = 0
        while position < len(answer.records):
            record = decode_record(answer.records, position)
            found.append(record.body)
            position += record.total_size
    return found


def test_a_list_has_every_queue_and_what_was_just_acknowledged(services: ThreeServices) -> None:
    answer = listed(services)
    (queue,) = (queue for queue in answer.queues if queue.topic == "orders")
    assert (queue.queue_id, queue.min_offset, queue.max_offset) == (1, 0, COUNT)
    assert queue.min_commit_offset == 0 == queue.approximate_bytes
    assert queue.end_commit_offset <= answer.visible_offset == services.appended_offset()
    assert (set(answer.topics), answer.min_commit_offset) == ({"empty", "grows", "orders"}, 0)
    assert len(bytes.fromhex(answer.store_id)) == 16


def test_a_stream_ends_at_its_end_offset(services: ThreeServices) -> None:
    answers = streamed(services, queue_offset=10, end_offset=200, max_bytes=2000)
    assert bodies(answers) == [b"m%d" % number for number in range(10, 200)]
    assert len(answers) > 5
    assert [answer.status for answer in answers] == [reader_pb2.FOUND] * len(answers)
    assert answers[-1].next_offset == 200
    assert answers[-1].max_offset == COUNT


def test_a_follower_waits_until_its_end_is_there(services: ThreeServices) -> None:
    found: list[bytes] = []
    request = reader_pb2.PullStreamRequest(topic="grows", follow=True, end_offset=3)

    def follow() -> None:
        found.extend(bodies(list(services.reader.PullStream(request, timeout=20))))

    follower = threading.Thread(target=follow)
    follower.start()
    for body in (b"a", b"b", b"c", b"d"):
        time.sleep(0.02)
        put(services, "grows", body)
    follower.join(20)
    assert found == [b"a", b"b", b"c"]


@pytest.mark.parametrize("end_offset", [-1, 0, 5])
def test_an_end_that_is_not_after_the_start_is_refused(
    services: ThreeServices, refusal: Callable[..., Any], end_offset: int
) -> None:
    refused = refusal(
        services.reader.PullStream,
        reader_pb2.PullStreamRequest(topic="orders", queue_offset=5, end_offset=end_offset),
    )
    assert refused.code == grpc.StatusCode.INVALID_ARGUMENT
    assert refused.bad_request.field_violations[0].field == "end_offset"


def test_a_tag_filter_examines_nothing_after_the_end(services: ThreeServices) -> None:
    answers = streamed(services, queue_offset=10, end_offset=13, tag_expression="A")
    assert bodies(answers) == [b"m10", b"m12"]
    assert answers[-1].next_offset == 13
    nothing = streamed(services, queue_offset=10, end_offset=13, tag_expression="C")
    assert bodies(nothing) == []
    assert [(a.status, a.next_offset) for a in nothing] == [(reader_pb2.NO_MATCHED_MESSAGE, 13)]
