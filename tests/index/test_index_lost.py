"""Index files that are deleted under a running store: reported, rebuilt, and named by queries."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_store import small_config
from index_support import contents, open_indexer, paths_of, put_keys, some_keys, work

from storage.index import builder as index_builder
from storage.indexer import StoreIndexer
from storage.reader import StoreReader
from storage.view.index.key_index import LISTING_AGE_MAX_S
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=20, index_entry_count=120)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[StoreWriter]:
    with StoreWriter.open(tmp_path / "store", CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, some_keys("a", 200, 4))
        yield writer


@pytest.fixture
def indexer(
    tmp_path: Path, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[StoreIndexer]:
    """One that looks at every step, and has indexed everything."""
    monkeypatch.setattr(index_builder, "LOOK_S", 0.0)
    with open_indexer(tmp_path / "store", CONFIG) as indexer:
        work(indexer)
        yield indexer


def unlink(*paths: Path) -> None:
    for path in paths:
        path.unlink()


LOSSES: dict[str, Callable[[list[Path]], None]] = {
    "the oldest": lambda paths: unlink(paths[0]),
    "one in between": lambda paths: unlink(paths[2]),
    "the newest": lambda paths: unlink(paths[-1]),
    "the last three": lambda paths: unlink(*paths[-3:]),
    "all": lambda paths: unlink(*paths),
    "the directory": lambda paths: shutil.rmtree(paths[0].parent),
}


@pytest.mark.parametrize("lose", LOSSES.values(), ids=LOSSES)
def test_lost_files_are_reported_and_made_again_while_the_indexer_works(
    tmp_path: Path,
    writer: StoreWriter,
    indexer: StoreIndexer,
    caplog: pytest.LogCaptureFixture,
    lose: Callable[[list[Path]], None],
) -> None:
    """To the byte, with what comes meanwhile."""
    directory = tmp_path / "store"
    before = paths_of(directory)
    wanted = contents(directory)
    assert len(wanted) > 4
    with caplog.at_level(logging.WARNING):
        lose(before)
        lost = sorted(set(before) - set(paths_of(directory)))
        work(indexer)
    told = [record.getMessage() for record in caplog.records]
    assert all(any(str(path) in line for line in told) for path in lost)
    assert all(any(str(path) in line for path in lost) for line in told)
    assert contents(directory) == wanted

    put_keys(writer, some_keys("b", 100, 4))
    work(indexer)
    assert indexer.indexed_offset == writer.appended_offset
    assert indexer.problem == ""


def test_a_query_names_the_range_of_a_missing_file_until_it_is_rebuilt(
    tmp_path: Path, indexer: StoreIndexer
) -> None:
    directory = tmp_path / "store"

    def found(key: str) -> int | str:
        answer = reader.query_by_key("t", key)
        return answer.uncovered[0].file_name if answer.uncovered else answer.record_count

    with StoreReader.open(directory) as reader:
        assert found("a3-1") == found("a199-2") == 1
        lost = paths_of(directory)[0]
        lost.unlink()
        time.sleep(LISTING_AGE_MAX_S)
        assert found("a3-1") == lost.name
        work(indexer)
        assert found("a3-1") == found("a199-2") == 1
        assert found("never") == 0

        indexer.close()
        for place in (1, -1):  # who comes later rebuilds them, too
            lost = paths_of(directory)[place]
            lost.unlink()
            time.sleep(LISTING_AGE_MAX_S)
            assert found("a3-1") == lost.name
            with open_indexer(directory, CONFIG) as again:
                work(again)
                assert found("a3-1") == found("a199-2") == 1


def test_a_directory_lost_in_the_middle_of_a_step_ends_no_indexer(
    tmp_path: Path, writer: StoreWriter, indexer: StoreIndexer, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    monkeypatch.setattr(index_builder, "LOOK_S", 3600.0)
    shutil.rmtree(directory / "index")
    put_keys(writer, some_keys("b", 100, 4))
    work(indexer)
    assert indexer.indexed_offset == writer.appended_offset
    with StoreReader.open(directory) as reader:
        assert reader.query_by_key("t", "a3-1").record_count == 1
