"""What a reader takes over of the writer's positions, with several threads at it and failing disks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import small_config

from storage.errors import TopicNotFound
from storage.format.record import decode_record
from storage.message import Message, PullResult
from storage.reader import StoreReader
from storage.writer import StoreWriter


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    with StoreWriter.open(tmp_path / "store", small_config()) as writer:
        writer.create_topic("t", 1)
        yield writer


def put(writer: StoreWriter, body: bytes = b"x") -> None:
    writer.put([Message(topic="t", body=body, queue_id=0)])
    assert writer.wait_dispatched(writer.appended_offset, 20)


def bodies(result: PullResult) -> list[bytes]:
    data, found, position = b"".join(result.slices), [], 0
    while position < len(data):
        record = decode_record(data, position)
        found.append(bytes(record.body))
        position += record.total_size
    return found


def test_a_queue_of_a_deleted_topic_is_not_served_from_what_a_reader_kept(
    tmp_path: Path, writer: StoreWriter
) -> None:
    """Nor is it taken for that of a topic that is made under the same name."""
    with StoreReader.open(tmp_path / "store") as reader:
        for _ in range(3):
            put(writer, b"old")
        assert bodies(reader.pull("t", 0, queue_offset=0)) == [b"old"] * 3
        writer.delete_topic("t")
        for refused in (
            lambda: reader.pull("t", 0, queue_offset=0),
            lambda: reader.max_offset("t", 0),
        ):
            with pytest.raises(TopicNotFound):
                refused()
        writer.create_topic("t", 1)
        put(writer, b"new")
        assert bodies(reader.pull("t", 0, queue_offset=0)) == [b"new"]
        assert (reader.min_offset("t", 0), reader.max_offset("t", 0)) == (0, 1)
