"""Groups begin anew in a topic that was deleted and created again: its queue offsets are those of other messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message
from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.reader import StoreReader
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.writer import StoreWriter

TOPIC, GROUP = "orders", "billing"


def put(writer: StoreWriter, count: int) -> None:
    writer.put([Message(topic=TOPIC, body=b"%d" % n, queue_id=0) for n in range(count)])
    writer.wait_dispatched(writer.appended_offset, 10)


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    """A store of ten messages, which two groups have read."""
    directory = tmp_path / "store"
    with StoreWriter.open(directory, small_config()) as writer:
        for name in (TOPIC, "kept"):
            writer.create_topic(name, 1)
        put(writer, 10)
        with StoreReader.open(directory) as reader:
            for group in (GROUP, "shipping"):
                reader.commit_offset(group, TOPIC, 0, 10)
                reader.consumer_offsets.commit(group, "kept", 0, 0)
            reader.consumer_offsets.save()
    return directory


def make_again(directory: Path) -> None:
    with StoreWriter.open(directory, small_config()) as writer:
        writer.delete_topic(TOPIC)
        writer.create_topic(TOPIC, 1)
        put(writer, 20)


def test_while_a_reader_keeps_the_offsets(directory: Path) -> None:
    with StoreReader.open(directory) as reader:
        reader.commit_offset(GROUP, TOPIC, 0, 10)
        make_again(directory)
        assert reader.committed_offset(GROUP, TOPIC, 0) is None
        assert reader.committed_offsets("shipping") == {"kept": {0: 0}}

        reader.commit_offset(GROUP, TOPIC, 0, 7)
        reader.consumer_offsets.save()
        assert reader.committed_offset(GROUP, TOPIC, 0) == 7
    with StoreReader.open(directory) as reader:
        assert reader.committed_offset(GROUP, TOPIC, 0) == 7
        assert reader.committed_offset("shipping", TOPIC, 0) is None


def test_when_it_was_deleted_while_none_kept_them(directory: Path) -> None:
    """Whoever only looks sees it too."""
    make_again(directory)
    with StoreReader.open(directory) as looking, StoreReader.open(directory) as reader:
        assert looking.committed_offset(GROUP, TOPIC, 0) is None
        assert reader.committed_offset(GROUP, TOPIC, 0) is None
        reader.commit_offset("another", TOPIC, 0, 3)
        assert reader.committed_offsets(GROUP) == {"kept": {0: 0}}
    table = ConsumerOffsets(FileSystem(), directory / "config", SystemClock())
    assert table.fetch(GROUP, TOPIC, 0) is None  # on disk too
    assert table.fetch("another", TOPIC, 0) == 3
