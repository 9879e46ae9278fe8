"""A real broker opens a store with staged and half-committed staged commits and ignores them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from engine_store import records_on_disk, small_config
from full_filesystem import FullableFileSystem
from oracle import SMALL_FILES, oracle_open
from staged_records import stage

from storage.clock import SystemClock
from storage.errors import StoreFull
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.writer import StoreWriter

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]


def bodies(count: int) -> list[bytes]:
    return [b"%d " % n + b"x" * 2_000 for n in range(count)]


def test_a_broker_opens_it_and_we_complete_it_afterwards(tmp_path: Path) -> None:
    directory, kept = tmp_path / "store", tmp_path / "kept"
    filesystem = FullableFileSystem()
    with StoreWriter.open(directory, small_config(), filesystem=filesystem) as writer:
        writer.create_topic("t", 2)
        stage(writer.staged, "done", 0, "a", [bodies(10)], queue_count=2)
        writer.staged.commit("done", 0, ["a"])
        stage(writer.staged, "staged", 0, "a", [bodies(3)], queue_count=2)
        stage(writer.staged, "decided", 0, "a", [[each] for each in bodies(100)])
        filesystem.full = "commitlog"
        with pytest.raises(StoreFull):
            writer.staged.commit("decided", 0, ["a"])
        with closing(
            StoreIndexer.open(
                directory, small_config(), filesystem=FileSystem(), clock=SystemClock()
            )
        ) as indexer:
            while indexer.step():
                pass
    before = len(records_on_disk(directory))
    assert 10 < before < 110
    opened = oracle_open(directory, settings=SMALL_FILES, keep=kept)
    assert opened.good, (opened.report, opened.stderr[-500:])
    assert opened.report["records"] == before
    appended = len(records_on_disk(kept)) - before
    with StoreWriter.open(kept, small_config()) as writer:
        assert writer.staged.commit("decided", 0, [])[1]
        assert writer.staged.commit("staged", 0, ["a"])[0].record_count == 3
    found = [each.body for each in records_on_disk(kept)]
    assert len(found) == 113 + appended
    assert sorted(found).count(bodies(100)[99]) == 1
