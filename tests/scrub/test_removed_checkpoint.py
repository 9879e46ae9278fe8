"""The checkpoint is removed while the store is open: it gets its name again, and nobody goes on in another page."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage import Message, MessageStore, StoreConfig, StoreReader
from storage.checkpoint.second_name import SECOND_NAME
from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.indexer import StoreIndexer
from storage.testing import SteppedClock, SteppedWorkers
from storage.writer import StoreWriter

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
REST_S = 1_000.0  # more than between two looks


class Opened:
    def __init__(self, directory: Path) -> None:
        self.clock, self.workers = SteppedClock(), SteppedWorkers()
        self.store = MessageStore.open(directory, CONFIG, clock=self.clock, workers=self.workers)
        self.store.create_topic("t", 1)
        self.page = directory / "checkpoint"
        self.kept = directory / "config" / SECOND_NAME
        self.inode = self.page.stat().st_ino

    def put(self) -> None:
        self.store.put(Message(topic="t", body=b"x", keys=("k",)))
        self.workers.step("dispatch")
        self.workers.step("index")

    def look(self) -> None:
        self.clock.advance(REST_S)
        self.workers.step("scrub")

    def finding_count(self) -> int:
        return self.store.status().scrub.finding_count


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    opened = Opened(tmp_path)
    yield opened
    opened.store.close()


def removed(opened: Opened) -> None:
    opened.page.unlink()


def replaced(opened: Opened) -> None:
    data = opened.page.read_bytes()
    opened.page.unlink()
    opened.page.write_bytes(data)


@pytest.mark.parametrize("change", [removed, replaced])
def test_the_next_look_gives_the_page_its_name_again(
    opened: Opened, caplog: pytest.LogCaptureFixture, change: Callable[[Opened], None]
) -> None:
    opened.look()
    assert opened.finding_count() == 0
    with caplog.at_level(logging.WARNING):
        for count in (1, 2):
            change(opened)
            opened.put()
            opened.look()
            opened.look()
            assert opened.finding_count() == count
    assert opened.page.stat().st_ino == opened.kept.stat().st_ino == opened.inode
    events = [each.getMessage() for each in caplog.records if "scrub" in each.name]
    assert len(events) == 2
    assert f"checkpoint: checkpoint: was {change.__name__} while the store was open" in events[0]

    with StoreReader.open(opened.page.parent) as reader:  # which opens it by its name
        opened.put()
        assert reader.max_offset("t", 0) == 3
        assert reader.query_by_key("t", "k").record_count == 3
        assert reader.positions is not None
        assert reader.positions.indexed_offset == opened.store.status().appended_offset


def test_without_both_names_it_is_said_once_what_to_do(opened: Opened) -> None:
    opened.page.unlink()
    opened.kept.unlink()
    opened.look()
    opened.look()
    assert opened.finding_count() == 1
    assert "stop all services and start them again" in opened.store.status().scrub.last_finding


def test_a_failure_is_said_once_and_tried_again(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.page.unlink()

    def fails(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(OsFileSystem, "link", fails)
        opened.look()
        opened.look()
    assert opened.finding_count() == 1
    opened.look()
    assert opened.page.stat().st_ino == opened.inode
    assert opened.finding_count() == 2


def test_where_no_second_name_can_be_had_all_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    link = OsFileSystem.link
    monkeypatch.setattr(
        OsFileSystem, "link",
        lambda self, old, new: fails() if new.name.startswith(SECOND_NAME) else link(self, old, new),
    )  # fmt: skip
    opened = Opened(tmp_path)
    opened.put()
    opened.look()
    assert opened.finding_count() == 0 and not opened.kept.exists()
    opened.store.close()


def test_a_start_takes_no_page_that_was_removed_while_nobody_ran(tmp_path: Path) -> None:
    """As a store of which the checkpoint was removed so that all of the log is read."""
    MessageStore.open(tmp_path, CONFIG).close()
    before = (tmp_path / "checkpoint").stat().st_ino
    (tmp_path / "checkpoint").unlink()
    with MessageStore.open(tmp_path, CONFIG):
        assert (tmp_path / "checkpoint").stat().st_ino != before
        assert (tmp_path / "checkpoint").samefile(tmp_path / "config" / SECOND_NAME)


def test_a_copy_that_has_two_files_gets_two_names_of_one(tmp_path: Path) -> None:
    MessageStore.open(tmp_path / "store", CONFIG).close()
    copy = shutil.copytree(tmp_path / "store", tmp_path / "copy")
    with MessageStore.open(copy, CONFIG):
        assert (copy / "checkpoint").samefile(copy / "config" / SECOND_NAME)


def test_a_writer_that_starts_meanwhile_goes_on_in_the_page_that_the_indexer_has(
    tmp_path: Path,
) -> None:
    with StoreWriter.open(tmp_path, CONFIG) as writer:
        writer.create_topic("t", 1)
    with StoreIndexer.open(
        tmp_path, CONFIG, filesystem=OsFileSystem(), clock=SystemClock()
    ) as indexer:
        before = (tmp_path / "checkpoint").stat().st_ino
        (tmp_path / "checkpoint").unlink()
        with StoreWriter.open(tmp_path, CONFIG) as writer:
            assert (tmp_path / "checkpoint").stat().st_ino == before
            writer.put([Message(topic="t", body=b"x", keys=("k",), queue_id=0)])
            while indexer.step():
                pass
            assert indexer.indexed_offset == writer.appended_offset
