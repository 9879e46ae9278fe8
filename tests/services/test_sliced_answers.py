"""Answers about very many queues are made some at a time, off the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from three_services import ThreeServices, three_services

from penstock.batch import RecordBatch
from penstock.v1 import reader_pb2, transactions_pb2, writer_pb2
from services import wire
from services.reader import servicer as reader_servicer
from services.writer import topics as writer_topics
from services.writer import transactions as writer_transactions
from storage.tables.topics import TopicConfig
from storage.transactions.values import (
    EndedTransaction,
    PendingTransaction,
    PendingTransactions,
    TransactionState,
)

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


def test_a_described_topic(services: ThreeServices, made: list[tuple[int, str]]) -> None:
    answer = services.writer.DescribeTopic(writer_pb2.DescribeTopicRequest(name="wide"), timeout=30)
    assert [(queue.queue_id, queue.min_offset, queue.max_offset) for queue in answer.queues] == [
        (queue_id, 0, 1) for queue_id in range(COUNT)
    ]
    assert answer.topic.name == "wide"
    check(made, "asyncio")


def test_a_list_of_topics(made: list[tuple[int, str]]) -> None:
    topics = [
        TopicConfig(name=f"t{number:04}", read_queue_count=1, write_queue_count=1)
        for number in range(COUNT)
    ]
    store = SimpleNamespace(list_topics=lambda: topics[::-1])
    servicer = writer_topics.TopicMethods(cast("Any", store))
    data = asyncio.run(servicer.list_topics(writer_pb2.ListTopicsRequest(), cast("Any", None)))
    names = [topic.name for topic in writer_pb2.ListTopicsResponse.FromString(data).topics]
    assert names == [topic.name for topic in topics]
    check(made, "asyncio")


def test_transactions(made: list[tuple[int, str]]) -> None:
    """Those that are pending, and the answer to the end of many."""
    keys = [str(number) for number in range(COUNT)]
    ended = [EndedTransaction(key, TransactionState.COMMITTED, 1, False, "") for key in keys]
    pending = [PendingTransaction(key, ("orders",), 1, 2, 3, 4, "") for key in keys]
    listing = PendingTransactions(pending, COUNT + 1)
    store = SimpleNamespace(pending=lambda: listing, end=lambda *_, **__: (ended, 7))
    acks = SimpleNamespace(has=lambda _: True)
    servicer = writer_transactions.TransactionServicer(
        cast("Any", store), cast("Any", acks), cast("Any", None)
    )
    listed = asyncio.run(servicer.list_transactions(cast("Any", None), cast("Any", None)))
    check(made, "asyncio")
    made.clear()
    request = transactions_pb2.EndTransactionsRequest(
        transaction_ids=keys, resolution=transactions_pb2.RESOLUTION_COMMIT
    )
    answered = asyncio.run(servicer.end_transactions(request, cast("Any", None)))
    check(made, "asyncio")
    answer = transactions_pb2.ListTransactionsResponse.FromString(listed)
    assert answer.pending_count == COUNT + 1
    for found in (
        answer.transactions,
        transactions_pb2.EndTransactionsResponse.FromString(answered).transactions,
    ):
        assert [each.transaction_id for each in found] == keys


def test_slices_without_items(made: list[tuple[int, str]]) -> None:
    head = reader_pb2.ListQueuesResponse(store_id="id")
    whole = wire.sliced(head, [], reader_servicer._queues_message)
    assert reader_pb2.ListQueuesResponse.FromString(whole) == head
    assert made == []
