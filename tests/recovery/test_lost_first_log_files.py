"""The first files of the log were removed by somebody, not by retention: the doctor and the next start say so."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore, offline

FILE_SIZE = 1 << 12
CONFIG = small_config(commit_log_file_size=FILE_SIZE, consume_queue_file_size=200)
COUNT = 90


def put(store: MessageStore, count: int) -> None:
    for n in range(count):
        store.put(Message(topic="t", body=b"%06d" % n, queue_id=0))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A store that stopped in order."""
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        store.create_topic("t", 1)
        put(store, COUNT)
    return tmp_path / "store"


def log_file(directory: Path, number: int) -> Path:
    return directory / "commitlog" / f"{number * FILE_SIZE:020d}"


def by_retention(directory: Path) -> None:
    """Have a writer begin where the log's files begin now, as it does when it has deleted some itself."""
    log_file(directory, 0).unlink()
    MessageStore.open(directory, CONFIG).close()


def missing(directory: Path) -> list[tuple[object, ...]]:
    return [
        (line["severity"], line["file"], line["begin"], line["end"])
        for line in offline.doctor(directory)
        if line["kind"] == "log-file-missing"
    ]


def of_files(begin: int, end: int) -> list[tuple[object, ...]]:
    name = f"commitlog/{begin * FILE_SIZE:020d}"
    return [("damage", name, begin * FILE_SIZE, end * FILE_SIZE)]


@pytest.mark.parametrize("count", [1, 2])
def test_the_doctor_and_the_next_start_name_them(
    directory: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    for number in range(count):
        log_file(directory, number).unlink()
    assert missing(directory) == of_files(0, count)

    with caplog.at_level(logging.ERROR), MessageStore.open(directory, CONFIG) as store:
        put(store, 1)
        assert store.max_offset("t", 0) == COUNT + 1

    [event] = [each.getMessage() for each in caplog.records if "oldest files" in each.getMessage()]
    assert f"[0, {count * FILE_SIZE})" in event
    assert missing(directory) == []


def test_what_retention_deleted_is_not_missed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_retention(directory)
    caplog.clear()
    assert missing(directory) == []
    MessageStore.open(directory, CONFIG).close()
    assert not caplog.records
    log_file(directory, 1).unlink()
    assert missing(directory) == of_files(1, 2)
