"""A log that lost its end under groups, while a reader keeps their offsets: none of them misses what comes next."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore
from storage.reader import StoreReader
from storage.writer import StoreWriter

KEPT, LOST, NEXT = 5, 5, 8
MESSAGES = [Message(topic="t", body=b"x")] * KEPT


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose log ends at 5 while the groups were at 10, 4 and 10."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    with MessageStore.open(whole, small_config()) as opened:
        opened.create_topic("t", 1)
        opened.put_all(MESSAGES)
    shutil.copytree(whole, cut)
    with MessageStore.open(whole, small_config()) as opened:
        opened.put_all(MESSAGES[:LOST])
        assert opened.writer.wait_dispatched(opened.writer.appended_offset, 30)
        for group, offset in (("ahead", 10), ("behind", 4), ("sets itself", 10)):
            opened.reader.commit_offset(group.replace(" ", "-"), "t", 0, offset)
    for path in (whole / "config").glob("consumerOffset*"):
        shutil.copy(path, cut / "config")
    return cut


@pytest.fixture
def reader(store: Path) -> Iterator[StoreReader]:
    """It keeps the offsets before the writer starts."""
    with StoreReader.open(store) as opened:
        opened.consumer_offsets.own()
        yield opened


def grow(store: Path) -> None:
    """Have a writer recover, and the queue grow beyond where the groups were."""
    with StoreWriter.open(store, small_config()) as writer:
        writer.put(MESSAGES[:1] * NEXT)
        assert writer.wait_dispatched(writer.appended_offset, 30)


def test_a_group_that_is_asked_late_goes_on_where_the_queue_ended(
    store: Path, reader: StoreReader, caplog: pytest.LogCaptureFixture
) -> None:
    grow(store)
    assert "group ahead was at 10 in queue 0 of t, which ends at 5" in caplog.text
    assert reader.max_offset("t", 0) == KEPT + NEXT
    assert reader.committed_offset("ahead", "t", 0) == KEPT
    assert reader.committed_offsets("behind") == {"t": {0: 4}}
    reader.close()
    with StoreReader.open(store) as again:
        assert again.committed_offset("ahead", "t", 0) == KEPT


def test_what_a_group_sets_after_the_loss_stays(store: Path, reader: StoreReader) -> None:
    grow(store)
    assert reader.commit_offset("sets-itself", "t", 0, 10) == 10
    assert reader.committed_offset("sets-itself", "t", 0) == 10
    assert reader.committed_offset("ahead", "t", 0) == KEPT


def test_a_reader_that_died_before_it_looked_leaves_it_to_the_next(
    store: Path, reader: StoreReader
) -> None:
    saved = (store / "config" / "consumerOffset.json").read_bytes()
    grow(store)
    reader.close()  # which takes no look
    assert (store / "config" / "consumerOffset.json").read_bytes() == saved
    with StoreReader.open(store) as again:
        assert again.committed_offset("ahead", "t", 0) == KEPT  # it keeps no offsets
    grow(store)
    with StoreReader.open(store) as again:
        again.commit_offset("another", "t", 0, 1)
        assert again.committed_offset("ahead", "t", 0) == KEPT
        again.commit_offset("ahead", "t", 0, 10)
    with StoreReader.open(store) as again:  # once is enough
        assert again.committed_offset("ahead", "t", 0) == 10
