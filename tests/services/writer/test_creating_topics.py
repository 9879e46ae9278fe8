"""Creating many topics at once: requests that come together share one change of the table."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_store import small_config

from penstock.v1 import writer_pb2
from services.writer.topics import TOPICS_MAX, TopicMethods
from storage.errors import InvalidMessage, TopicExists
from storage.tables.topic_table import Created
from storage.tables.topics import NewTopic, TopicConfig
from storage.writer import StoreWriter


class CountedStore:
    """A store that counts changes of its table, and makes the first one wait."""

    def __init__(self, store: StoreWriter) -> None:
        self._store = store
        self.changes = 0
        self.begun = threading.Event()
        self.may_go = threading.Event()

    def create_topics(self, groups: Sequence[Sequence[NewTopic]]) -> list[Created]:
        self.changes += 1
        self.begun.set()
        self.may_go.wait(20)
        return self._store.create_topics(groups)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


def request(name: str, queue_count: int = 2) -> writer_pb2.CreateTopicRequest:
    return writer_pb2.CreateTopicRequest(name=name, queue_count=queue_count)


async def test_requests_that_come_during_a_change_share_the_next_one(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        store = CountedStore(writer)
        creation = TopicMethods(store)  # type: ignore[arg-type]
        first = asyncio.create_task(creation._created([request("first")]))
        await asyncio.to_thread(store.begun.wait, 20)
        more = [asyncio.create_task(creation._created([request(f"t{n}")])) for n in range(200)]
        refused = asyncio.create_task(creation._created([request("t7")]))
        await asyncio.sleep(0)
        store.may_go.set()
        topics: list[list[TopicConfig]] = await asyncio.gather(first, *more)
        with pytest.raises(TopicExists, match="t7"):
            await refused
        assert store.changes == 2
        assert [topic.name for (topic,) in topics] == ["first", *(f"t{n}" for n in range(200))]
    with StoreWriter.open(tmp_path, small_config()) as again:
        assert len(again.list_topics()) == 201


async def test_a_caller_who_goes_away_keeps_nobody_waiting(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        store = CountedStore(writer)
        creation = TopicMethods(store)  # type: ignore[arg-type]
        gone = asyncio.create_task(creation._created([request("gone")]))
        await asyncio.to_thread(store.begun.wait, 20)
        staying = asyncio.create_task(creation._created([request("staying")]))
        await asyncio.sleep(0)
        gone.cancel()
        store.may_go.set()
        (topic,) = await staying
        assert topic.name == "staying"


async def test_topics_of_one_request_are_created_all_or_none(tmp_path: Path) -> None:
    with StoreWriter.open(tmp_path, small_config()) as writer:
        methods = TopicMethods(writer)
        made = await methods.create_topics(
            writer_pb2.CreateTopicsRequest(topics=[request("a"), request("b", 3)]),
            None,  # type: ignore[arg-type]
        )
        assert [(topic.name, topic.write_queue_count) for topic in made.topics] == [
            ("a", 2), ("b", 3),
        ]  # fmt: skip
        for topics, error in (
            ([request("c"), request("a")], TopicExists),
            ([request("c"), request("c")], TopicExists),
            ([request("c"), request("no spaces")], InvalidMessage),
            ([request("c"), request("d", 0)], InvalidMessage),
            ([], InvalidMessage),
            ([request("c")] * (TOPICS_MAX + 1), InvalidMessage),
        ):
            with pytest.raises(error):
                await methods.create_topics(
                    writer_pb2.CreateTopicsRequest(topics=topics),
                    None,  # type: ignore[arg-type]
                )
        assert [topic.name for topic in writer.list_topics()] == ["a", "b"]
