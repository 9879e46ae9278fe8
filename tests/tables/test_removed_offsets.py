"""All files of the groups' offsets were removed: the doctor and whoever keeps the offsets next say so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config

from storage import Message, MessageStore, offline
from storage.errors import StoreFull
from storage.files.filesystem import OsFileSystem
from storage.reader import StoreReader
from storage.tables.deleted_progress import DeletedProgress

GROUP = "billing"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A stopped store of ten messages and no group."""
    with MessageStore.open(tmp_path, small_config()) as store:
        store.create_topic("orders", 1)
        store.put_all([Message(topic="orders", body=b"%d" % n) for n in range(10)])
    return tmp_path


def commit(directory: Path, queue_offset: int) -> None:
    with StoreReader.open(directory) as reader:
        reader.commit_offset(GROUP, "orders", 0, queue_offset)
        reader.consumer_offsets.save()


def remove(directory: Path, pattern: str = "consumerOffset.json*") -> None:
    found = list((directory / "config").glob(pattern))
    assert found
    for path in found:
        path.unlink()


def found(directory: Path) -> list[tuple[Any, ...]]:
    return [
        (line["severity"], line["kind"], line["file"])
        for line in offline.doctor(directory)
        if line["severity"] in ("warning", "damage")
    ]


MISSING = [("damage", "table-missing", "config/consumerOffset.json")]


@pytest.mark.parametrize("restarts", [False, True])
def test_they_are_named_until_a_group_has_progress_again(
    directory: Path, caplog: pytest.LogCaptureFixture, restarts: bool
) -> None:
    commit(directory, 7)
    assert found(directory) == []
    remove(directory)
    if restarts:
        MessageStore.open(directory, small_config()).close()
    assert found(directory) == MISSING

    with caplog.at_level(logging.ERROR), StoreReader.open(directory) as reader:
        assert reader.committed_offset(GROUP, "orders", 0) is None
        reader.commit_offset(GROUP, "orders", 0, 3)
        reader.commit_offset(GROUP, "orders", 0, 4)
    [event] = [record.getMessage() for record in caplog.records]
    assert "config/consumerOffset.json: is missing with all of its copies" in event
    assert found(directory) == []


def test_a_store_in_which_no_group_committed_lacks_nothing(directory: Path) -> None:
    assert found(directory) == []
    with StoreReader.open(directory) as reader:
        reader.consumer_offsets.own()  # as for settings of groups
    assert not (directory / "config" / "consumerOffset.json").exists()
    assert found(directory) == []


def test_a_store_of_an_earlier_version_is_noted_when_somebody_keeps_its_offsets(
    directory: Path,
) -> None:
    commit(directory, 7)
    notes = DeletedProgress(OsFileSystem(), directory / "config")
    remove(directory, "deletedProgress.json*")
    notes.save({})
    assert not notes.has_progress()
    with StoreReader.open(directory) as reader:
        reader.consumer_offsets.own()
    assert notes.has_progress()
    notes.save({"another": 5})
    assert notes.has_progress() and notes.load() == {"another": 5}
    remove(directory)
    assert found(directory) == MISSING


def test_a_note_that_finds_no_room_is_written_with_the_next_save(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = DeletedProgress(OsFileSystem(), directory / "config")
    with StoreReader.open(directory) as reader:

        def full(_: DeletedProgress) -> None:
            raise StoreFull("no space left")

        with monkeypatch.context() as patched:
            patched.setattr(DeletedProgress, "note_progress", full)
            reader.commit_offset(GROUP, "orders", 0, 3)
            assert reader.consumer_offsets.save()
        assert not notes.has_progress()
        reader.commit_offset(GROUP, "orders", 0, 4)
        assert reader.consumer_offsets.save()
    assert notes.has_progress()


def test_one_copy_that_is_left_counts(directory: Path) -> None:
    commit(directory, 7)
    (directory / "config" / "consumerOffset.json").unlink()
    assert ("warning", "table", "config/consumerOffset.json") in found(directory)
    with StoreReader.open(directory) as reader:
        assert reader.committed_offset(GROUP, "orders", 0) == 7
