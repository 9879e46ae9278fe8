"""``Traffic``: what goes in and out, counted by writer and reader, and where groups are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from leasing import Consumer, create_topic, put
from three_services import ThreeServices, three_services

from penstock.v1 import reader_pb2, traffic_pb2, traffic_pb2_grpc
from services.reader import metrics
from services.reader.metrics import GroupLags


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("traffic") / "store") as running:
        yield running


def traffic(services: ThreeServices, service: str) -> traffic_pb2.TrafficReport:
    with grpc.insecure_channel(getattr(services.running, service)) as channel:
        stub: Any = traffic_pb2_grpc.TrafficStub(channel)
        report: traffic_pb2.TrafficReport = stub.GetTraffic(
            traffic_pb2.GetTrafficRequest(), timeout=30
        )
        return report


def test_messages_are_counted_where_they_go(
    services: ThreeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "REST_RATIO", 0.0)
    create_topic(services, "orders", queues=2)
    begun_ms = time.time_ns() // 1_000_000
    put(services, "orders", b"a", b"b", b"c", queue_id=0)
    put(services, "orders", b"d", queue_id=1)
    billing = Consumer(services, "billing", "orders")
    leased = billing.receive(max_messages=3, queue_ids=[0])
    billing.acknowledge(leased[0])
    commit = reader_pb2.CommitOffsetRequest(
        group="post", topic="orders", queue_id=1, queue_offset=1
    )
    services.reader.CommitOffset(commit, timeout=30)
    services.reader.Pull(reader_pb2.PullRequest(topic="orders", queue_id=1), timeout=30)

    [stored] = traffic(services, "writer").stored
    out = traffic(services, "reader")

    assert (stored.topic, stored.messages) == ("orders", 4)
    assert stored.bytes > 4 * 90
    assert [(each.topic, each.group, each.messages) for each in out.sent] == [
        ("orders", "", 1),
        ("orders", "billing", 3),
    ]
    first, second = out.lags
    assert (first.group, first.lag, first.leased, first.ready, first.done) == (
        "billing",
        3,
        2,
        1,
        1,
    )
    assert begun_ms <= first.oldest_ms <= out.lags_at_ms
    assert (second.group, second.lag, second.done, second.oldest_ms) == ("post", 0, 1, 0)


def test_however_many_ask_the_reader_rests_between_two_looks_at_the_groups(
    services: ThreeServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = GroupLags.look

    def slow(lags: GroupLags) -> Any:
        found = look(lags)
        looks.append(found)
        lags.seconds = 60.0
        return found

    monkeypatch.setattr(GroupLags, "look", slow)
    traffic(services, "reader")
    at = {traffic(services, "reader").lags_at_ms for _ in range(5)}

    assert len(at) == 1
    assert len(looks) <= 1
