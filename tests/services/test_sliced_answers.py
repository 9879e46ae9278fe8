"""Answers about very many queues are made some at a time, off the event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from three_services import ThreeServices, three_services

from penstock.batch import RecordBatch
from penstock.v1 import reader_pb2, writer_pb2
from services import wire
from services.reader import servicer as reader_servicer

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
    """How many items each message had that was made, and in which thread."""
    found: list[tuple[int, str]] = []
    make = reader_servicer._queues_message

    def made_here(items: Sequence[Any]) -> Any:
        found.append((len(items), threading.current_thread().name))
        return make(items)

    monkeypatch.setattr(wire, "SLICE_ITEMS", SLICE)
    monkeypatch.setattr(reader_servicer, "_queues_message", made_here)
    return found


def test_a_list_of_queues(services: ThreeServices, made: list[tuple[int, str]]) -> None:
    request = reader_pb2.ListQueuesRequest(topics=["wide"])
    answer = services.reader.ListQueues(request, timeout=30)
    assert [(queue.queue_id, queue.max_offset) for queue in answer.queues] == [
        (queue_id, 1) for queue_id in range(COUNT)
    ]
    assert (list(answer.topics), answer.described[0].name) == (["wide"], "wide")
    assert sum(count for count, _ in made) == COUNT
    assert max(count for count, _ in made) == SLICE
    assert all(name.startswith("reads") for _, name in made)
