"""Answers about very many queues are made some at a time, off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from three_services import ThreeServices, three_services

from penstock.batch import RecordBatch
from penstock.v1 import reader_pb2, writer_pb2
from services import wire
from services.reader import servicer as reader_servicer
from services.writer import topics as writer_topics

COUNT = 700
SLICE = 64


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeServices]:
    with three_services(tmp_path_factory.mktemp("wide") / "store") as running:
        running.writer.CreateTopic(
            writer_pb2.CreateTopicRequest(name="wide", queue_count=COUNT), timeout=30
        )
        batch = RecordBatch("wide")
        for queue_id in range(COUNT):
            batch.add(b"body", queue_id=queue_id)
        running.writer.ProduceBatch(
            writer_pb2.ProduceBatchRequest(records=batch.records()), timeout=30
        )
        yield running


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """How many queues each message had that was made, and in which thread."""
    found: list[tuple[int, str]] = []

    def noting(make: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        def made_here(items: Sequence[Any]) -> Any:
            found.append((len(items), threading.current_thread().name))
            return make(items)

        return made_here

    monkeypatch.setattr(wire, "SLICE_ITEMS", SLICE)
    for module in (reader_servicer, writer_topics):
        monkeypatch.setattr(module, "_queues_message", noting(module._queues_message))
    return found


def check(made: list[tuple[int, str]], thread: str) -> None:
    assert sum(count for count, _ in made) == COUNT
    assert max(count for count, _ in made) == SLICE
    assert all(name.startswith(thread) for _, name in made)


def test_a_list_of_queues(services: ThreeServices, made: list[tuple[int, str]]) -> None:
    request = reader_pb2.ListQueuesRequest(topics=["wide"])
    answer = services.reader.ListQueues(request, timeout=30)
    assert [(queue.queue_id, queue.max_offset) for queue in answer.queues] == [
        (queue_id, 1) for queue_id in range(COUNT)
    ]
    assert (list(answer.topics), answer.described[0].name) == (["wide"], "wide")
    check(made, "reads")


def test_a_described_topic(services: ThreeServices, made: list[tuple[int, str]]) -> None:
    answer = services.writer.DescribeTopic(writer_pb2.DescribeTopicRequest(name="wide"), timeout=30)
    assert [(queue.queue_id, queue.min_offset, queue.max_offset) for queue in answer.queues] == [
        (queue_id, 0, 1) for queue_id in range(COUNT)
    ]
    assert answer.topic.name == "wide"
    check(made, "asyncio")


def test_slices_without_items(made: list[tuple[int, str]]) -> None:
    head = reader_pb2.ListQueuesResponse(store_id="id")
    whole = wire.sliced(head, [], reader_servicer._queues_message)
    assert reader_pb2.ListQueuesResponse.FromString(whole) == head
    assert made == []
