"""Groups over gRPC: settings in a broker's table, progress by lease, resets with a preview."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from leasing import Consumer, create_group, create_topic, put
from three_services import ThreeServices, three_services

from penstock.v1 import groups_pb2, leases_pb2, reader_pb2

numbers = itertools.count()


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("groups") / "store") as running:
        yield running


@pytest.fixture
def consumer(services: ThreeServices) -> Consumer:
    number = next(numbers)
    create_topic(services, f"t{number}", 2)
    return Consumer(services, f"g{number}", f"t{number}")


def reset(services: ThreeServices, consumer: Consumer, **fields: Any) -> list[Any]:
    request = groups_pb2.ResetGroupRequest(group=consumer.group, topic=consumer.topic, **fields)
    return list(services.groups.ResetGroup(request, timeout=20).queues)


def test_progress_is_described_queue_by_queue(services: ThreeServices, consumer: Consumer) -> None:
    put(services, consumer.topic, b"a", b"b", queue_id=0)
    put(services, consumer.topic, b"c", queue_id=1)
    leased = consumer.receive(max_messages=3, wait_ms=2_000)
    assert len(leased) == 3
    first, second = consumer.describe()
    assert (first.queue_id, first.max_offset, first.leased, first.lag) == (0, 2, 2, 2)
    assert (second.queue_id, second.max_offset, second.leased, second.lag) == (1, 1, 1, 1)
    done = next(each for each in leased if each.body == b"c")
    assert consumer.acknowledge(done) == []
    request = groups_pb2.DescribeGroupRequest(group=consumer.group)
    answer = services.groups.DescribeGroup(request, timeout=20)
    assert [(queue.topic, queue.lag) for queue in answer.queues] == [
        (consumer.topic, 2), (consumer.topic, 0),
    ]  # fmt: skip
    assert answer.settings.name == consumer.group


def test_a_reset_shows_what_it_would_do_and_does_it(
    services: ThreeServices, consumer: Consumer
) -> None:
    put(services, consumer.topic, *(b"%d" % n for n in range(10)), queue_id=0)
    leased = consumer.receive(wait_ms=2_000)
    assert len(leased) == 10
    consumer.acknowledge(*leased[:6])
    preview = reset(services, consumer, begin=groups_pb2.FROM_EARLIEST, preview=True)
    assert [(q.queue_id, q.from_offset, q.to_offset, q.lag_before, q.lag_after) for q in preview] == [
        (0, 6, 0, 4, 10), (1, 0, 0, 0, 0),
    ]  # fmt: skip
    assert consumer.receive() == []
    assert reset(services, consumer, begin=groups_pb2.FROM_EARLIEST) == preview
    again = consumer.receive()
    assert [each.body for each in again] == [b"%d" % n for n in range(10)]
    assert consumer.acknowledge(leased[7]) != []
    reset(services, consumer, queue_ids=[0], queue_offset=9)
    assert [each.body for each in consumer.receive()] == [b"9"]
    reset(services, consumer, begin=groups_pb2.FROM_LATEST)
    assert consumer.receive() == []
    assert [queue.lag for queue in consumer.describe()] == [0, 0]


def test_a_reset_to_a_time_goes_to_the_first_message_from_then_on(
    services: ThreeServices, consumer: Consumer
) -> None:
    put(services, consumer.topic, b"old", queue_id=0)
    time.sleep(0.05)
    (stored,) = put(services, consumer.topic, b"new", queue_id=0)
    assert len(consumer.receive(wait_ms=2_000)) == 2
    reset(services, consumer, timestamp_ms=stored.store_timestamp_ms)
    assert [each.body for each in consumer.receive()] == [b"new"]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"retry_max_times": -1}, "retry_max_times"),
        ({"name": "a b"}, "group"),
        ({"name": ""}, "group"),
        ({"backoff": groups_pb2.Backoff()}, "backoff"),
        ({"backoff": groups_pb2.Backoff(customized=groups_pb2.CustomizedBackoff())}, "backoff"),
        ({"begin": 9}, "begin"),
    ],
)
def test_settings_that_cannot_be_name_the_field(
    services: ThreeServices, refusal: Any, fields: dict[str, Any], field: str
) -> None:
    settings = groups_pb2.GroupSettings(**{"name": "wrong", **fields})
    refused = refusal(services.groups.CreateGroup, groups_pb2.CreateGroupRequest(settings=settings))
    assert refused.code is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.bad_request.field_violations[0].field == field


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "nothing"}, "TOPIC_NOT_FOUND"),
        ({"queue_ids": [7], "queue_offset": 0}, "QUEUE_NOT_FOUND"),
        ({"queue_offset": 0}, "INVALID_ARGUMENT"),
        ({"queue_ids": [0], "queue_offset": 99}, "INVALID_ARGUMENT"),
        ({}, "INVALID_ARGUMENT"),
        ({"group": "nobody"}, "GROUP_NOT_FOUND"),
    ],
)
def test_resets_that_cannot_be_are_refused(
    services: ThreeServices, consumer: Consumer, refusal: Any, fields: dict[str, Any], reason: str
) -> None:
    create_group(services, consumer.group)
    given = {"group": consumer.group, "topic": consumer.topic, **fields}
    refused = refusal(services.groups.ResetGroup, groups_pb2.ResetGroupRequest(**given))
    assert refused.info.reason == reason


def test_offsets_of_the_stores_own_groups_are_not_a_callers(
    services: ThreeServices, consumer: Consumer, refusal: Any
) -> None:
    """They say how far transactions and a broker's leases are."""
    for group in ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_REVIVE_GROUP"):
        where = {"group": group, "topic": consumer.topic}
        for method, request in (
            (services.reader.CommitOffset, reader_pb2.CommitOffsetRequest(**where)),
            (services.groups.ResetGroup, groups_pb2.ResetGroupRequest(**where)),
            (services.groups.DeleteGroup, groups_pb2.DeleteGroupRequest(group=group)),
            (services.leases.Receive, leases_pb2.ReceiveRequest(**where)),
        ):
            assert refusal(method, request).info.reason.startswith("INVALID"), method
