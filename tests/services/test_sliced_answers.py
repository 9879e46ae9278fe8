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
from services.writer import transactions as writer_transactions

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

    def noting(make: Callable[[Sequence[Any]], Any]) -> Callable[[Sequence[Any]], Any]:
        def made_here(items: Sequence[Any]) -> Any:
            found.append((len(items), threading.current_thread().name))
            return make(items)

        return made_here

    monkeypatch.setattr(wire, "SLICE_ITEMS", SLICE)
    for module, name in (
        (reader_servicer, "_queues_message"),
        (writer_topics, "_queues_message"),
        (writer_topics, "_topics_message"),
        (writer_transactions, "_ended_message"),
        (writer_transactions, "_pending_message"),
    ):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))
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
