"""The settings of a store that changes are read again when they did, and only then."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore, StoreReader
from storage.files.filesystem import OsFile, OsFileSystem


class CountedReads(OsFileSystem):
    """Counts how often the settings are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def open(self, path: Path, *, writable: bool) -> OsFile:
        self.count += path.name.startswith("penstock.json")
        return super().open(path, writable=writable)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with settings that were written some time ago."""
    root = tmp_path / "store"
    with MessageStore.open(root, small_config()) as opened:
        for topic in ("a", "b"):
            opened.create_topic(topic, 1)
            opened.put(Message(topic=topic, body=b"body"))
    then = time.time_ns() - 10_000_000_000
    for path in (root / "config").glob("penstock.json*"):
        os.utime(path, ns=(then, then))
    return root


def test_extents_of_queues_read_the_settings_of_an_idle_store_once(store: Path) -> None:
    files = CountedReads()
    with StoreReader.open(store, filesystem=files) as reader:
        first = reader.queue_extents()
        files.count = 0

        assert [reader.queue_extents() for _ in range(5)] == [first] * 5
        assert files.count == 0


def test_extents_of_queues_see_a_deletion_at_once(store: Path) -> None:
    with MessageStore.open(store, small_config()) as opened:
        extents = opened.reader.queue_extents()
        assert [(extent.topic, extent.incarnation) for extent in extents] == [("a", 0), ("b", 0)]

        opened.delete_topic("a")

        assert [extent.topic for extent in opened.reader.queue_extents()] == ["b"]
        opened.create_topic("a", 1)
        opened.put(Message(topic="a", body=b"again"))
        opened.pull("a", 0, queue_offset=0)  # waits for dispatch
        again = opened.reader.queue_extents({"a"})
        assert [extent.incarnation != 0 for extent in again] == [True]
