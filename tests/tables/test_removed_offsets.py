"""All files of the groups' offsets were removed: the doctor and whoever keeps the offsets next say so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config

from storage import Message, MessageStore, offline
from storage.reader import StoreReader

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
