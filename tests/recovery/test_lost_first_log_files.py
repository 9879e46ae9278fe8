"""The first files of the log were removed by somebody, not by retention: the doctor and the next start say so."""

from __future__ import annotations

import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import small_config

from storage import Message, MessageStore, offline
from storage.checkpoint.positions import CheckpointFile, Role
from storage.checkpoint.trust import kept_from
from storage.files.filesystem import OsFileSystem

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


def test_they_are_named_after_a_kill_and_under_a_running_store(tmp_path: Path) -> None:
    directory, killed = tmp_path / "store", tmp_path / "killed"
    with MessageStore.open(directory, CONFIG) as store:
        store.create_topic("t", 1)
        put(store, COUNT)
        assert store.max_offset("t", 0) == COUNT
        shutil.copytree(directory, killed)
        log_file(directory, 0).unlink()
        assert missing(directory) == of_files(0, 1)
    log_file(killed, 0).unlink()
    assert missing(killed) == of_files(0, 1)


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


def older_copy(directory: Path) -> None:
    """The page of an orderly stop, before more was stored and retention deleted."""
    page = (directory / "checkpoint").read_bytes()
    with MessageStore.open(directory, CONFIG) as store:
        put(store, 1)
    by_retention(directory)
    (directory / "checkpoint").write_bytes(page)


def brokers_run(directory: Path) -> None:
    log_file(directory, 0).unlink()
    with (directory / "checkpoint").open("r+b") as page:
        (time_ms,) = struct.unpack(">q", page.read(8))
        page.seek(0)
        page.write(struct.pack(">q", time_ms + 1))


def another_page(directory: Path) -> None:
    """As a job writes it for a new store: slots, and no session."""
    log_file(directory, 0).unlink()
    page = directory / "checkpoint"
    data = bytearray(page.read_bytes())
    data[512:1024] = bytes(512)
    page.write_bytes(data)


@pytest.mark.parametrize("change", [older_copy, brokers_run, another_page])
def test_nothing_is_said_where_the_page_is_no_evidence(
    directory: Path, change: Callable[[Path], None]
) -> None:
    change(directory)
    assert missing(directory) == []


@pytest.mark.parametrize("is_orderly", [True, False])
def test_a_power_cut_may_leave_an_older_page(directory: Path, is_orderly: bool) -> None:
    """Retention publishes where the log begins and removes the file; the page may be synced later."""
    with MessageStore.open(directory, CONFIG) as store:
        end_offset = store.status().appended_offset
        path = directory / "checkpoint"
        if is_orderly:
            store.close()
        page = CheckpointFile.open(OsFileSystem(), path, Role.READER, boot_id=b"another boot id.")
        assert kept_from(page, end_offset) == (0 if is_orderly else None)
        page.close()
