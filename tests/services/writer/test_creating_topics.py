"""Creating many topics at once, all or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config

from penstock.v1 import writer_pb2
from services.writer.topics import TOPICS_MAX, TopicMethods
from storage.errors import InvalidMessage, TopicExists
from storage.writer import StoreWriter


def request(name: str, queue_count: int = 2) -> writer_pb2.CreateTopicRequest:
    return writer_pb2.CreateTopicRequest(name=name, queue_count=queue_count)


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
