"""The indexer lets messages gather that nobody asks for, and goes on at once when somebody does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_store import small_config
from index_support import put_keys
from real_processes import until

from storage import indexer as module
from storage.checkpoint.positions import CheckpointFile, Role
from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.writer import StoreWriter

FILESYSTEM = FileSystem()


@pytest.fixture(name="pair")
def _pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[StoreWriter, StoreIndexer]]:
    """A writer, and an indexer that would gather for a minute, with one message indexed."""
    monkeypatch.setattr(module, "GATHER_S", 60.0)
    monkeypatch.setattr(module, "IDLE_WAIT_S", 60.0)
    with (
        StoreWriter.open(tmp_path, small_config()) as writer,
        StoreIndexer.open(
            tmp_path, small_config(), filesystem=FILESYSTEM, clock=SystemClock()
        ) as indexer,
    ):
        writer.create_topic("t", 1)
        indexer.start()
        put(writer)
        until(lambda: indexer.indexed_offset == writer.appended_offset)
        until(lambda: indexer._worker._asleep)
        yield writer, indexer


def put(writer: StoreWriter) -> int:
    put_keys(writer, [("k",)])
    return writer.appended_offset


def test_what_nobody_asks_for_gathers_until_somebody_does(
    pair: tuple[StoreWriter, StoreIndexer],
) -> None:
    writer, indexer = pair
    before = indexer.indexed_offset
    for _ in range(5):
        end = put(writer)
    assert indexer.indexed_offset == before
    assert indexer.wait_indexed(end, 20)

    end = put(writer)
    assert indexer.indexed_offset < end
    assert indexer.wait_indexed(end, 20)


def test_another_process_asks_by_a_knock(
    pair: tuple[StoreWriter, StoreIndexer], tmp_path: Path
) -> None:
    """It has the page mapped to read only, and changes nothing in it."""
    writer, indexer = pair
    page = CheckpointFile.open(FILESYSTEM, tmp_path / "checkpoint", Role.READER)
    end = put(writer)
    assert indexer.indexed_offset < end

    def is_indexed() -> bool:
        page.indexer_wake.knock()
        return indexer.indexed_offset == end

    until(is_indexed)
    page.close()
