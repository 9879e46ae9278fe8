"""Queues are looked up on disk as seldom as can be: a batch may be for tens of thousands of them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_store import PASSING, small_config

from penstock.batch import RecordBatch
from storage import MessageStore
from storage.files.filesystem import DirectoryEntry, FileSystem
from storage.files.only_files import OnlyFile
from storage.files.system.os_file import File
from storage.format.consume_entry import UNIT_SIZE
from storage.queues import queue_files
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_files import OpenQueueFiles
from storage.writer import StoreWriter

COUNT = 300


class _Listings(FileSystem):
    """Notes which directories are listed, and which files are opened."""

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[Path] = []
        self.opened: list[Path] = []

    def open(self, path: Path, *, writable: bool) -> File:
        self.opened.append(path)
        return super().open(path, writable=writable)

    def only_files(
        self, directory: Path, names: Sequence[str], length: int
    ) -> list[OnlyFile | None]:
        found = super().only_files(directory, names, length)
        self.listed += [directory / name for name in names]
        self.opened += [
            directory / name / file.name
            for name, file in zip(names, found, strict=True)
            if file is not None
        ]
        return found

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        self.listed.append(path)
        return super().list_directory(path)


@pytest.fixture
def records() -> bytes:
    batch = RecordBatch("wide")
    for queue_id in range(COUNT):
        batch.add(b"body", queue_id=queue_id)
    return batch.records()


def first_offsets(writer: StoreWriter, records: bytes) -> set[int]:
    return {each.first_queue_offset for each in writer.append_batch(records).ranges}


def test_a_batch_for_many_queues_is_left_to_who_may_wait(tmp_path: Path, records: bytes) -> None:
    with MessageStore.open(tmp_path / "s", small_config()) as store:
        store.create_topic("wide", COUNT)
        store.writer.append_batch(records)
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        before = writer.appended_offset
        assert writer.append_batch_of_few(records, queues_max=COUNT - 1) is None
        assert writer.appended_offset == before
        found = writer.append_batch_of_few(records, queues_max=COUNT)
        assert found is not None
        assert {each.first_queue_offset for each in found.ranges} == {1}


def test_a_start_after_a_kill_looks_at_each_queue_once(
    tmp_path: Path, records: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lists its files and reads the end of its last one; the first checkpoint opens one file for all."""
    monkeypatch.setattr(queue_files, "OPEN_FILES_MAX", 16)  # far fewer than there are
    config = small_config(queue_flush_interval_ms=3_600_000)
    with StoreWriter.open(tmp_path / "s", config) as writer:
        writer.create_topic("wide", COUNT)
        writer.append_batch(records)
        assert writer.wait_dispatched(writer.appended_offset, 30)
        shutil.copytree(tmp_path / "s", tmp_path / "killed", ignore=PASSING)
    filesystem = _Listings()
    with StoreWriter.open(tmp_path / "killed", config, filesystem=filesystem) as writer:
        assert writer.stopped_unclean
        assert first_offsets(writer, records) == {1}
        listed = Counter(path for path in filesystem.listed if "wide" in path.parts)
        at_start = _opened(filesystem)
        assert writer.wait_dispatched(writer.appended_offset, 30)
        filesystem.opened.clear()
        writer._engine.checkpointer.checkpoint()
        again = _opened(filesystem)
        assert writer.describe_topic("wide")[1] == [(0, 2)] * COUNT
    directory = tmp_path / "killed" / "consumequeue" / "wide"
    assert listed.pop(directory) <= 3  # by who looks at all topics
    assert len(listed) == listed.total() == COUNT
    assert again.total() <= 1  # which is synced for all
    assert at_start.total() <= 3 * COUNT  # dispatch opens some before, on a busy machine all


def test_queues_written_in_turn_find_most_of_their_files_open_where_not_all_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the oldest always went, each write would open a file again."""
    monkeypatch.setattr(queue_files, "OPEN_FILES_MAX", 16)
    filesystem = _Listings()
    files = OpenQueueFiles(filesystem, tmp_path, file_size=100 * UNIT_SIZE)
    queues = [ConsumeQueue(files, "wide", queue_id) for queue_id in range(18)]
    units = [bytes([number]) * UNIT_SIZE for number in range(11)]
    for unit in units:
        for queue in queues:
            if not queue.append_next(queue.next_offset, memoryview(unit)):
                queue.append(unit)
    assert _opened(filesystem).total() < len(queues) * len(units) / 2
    assert {queue.read(0, len(units)) for queue in queues} == {b"".join(units)}
    files.close()


def test_a_file_that_is_closed_for_another_costs_only_its_queue_the_next_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_files, "OPEN_FILES_MAX", 2)
    files = OpenQueueFiles(FileSystem(), tmp_path, file_size=100 * UNIT_SIZE)
    queues = [ConsumeQueue(files, "wide", queue_id) for queue_id in range(3)]
    unit = memoryview(bytes(UNIT_SIZE))
    for queue in queues:
        queue.append(unit)
    assert sorted(queue.append_next(1, unit) for queue in queues) == [False, True, True]
    files.close()


def _opened(filesystem: _Listings) -> Counter[Path]:
    return Counter(path.parent for path in filesystem.opened if path.parts[-3] == "wide")


def test_a_topic_of_the_same_name_begins_at_zero(tmp_path: Path, records: bytes) -> None:
    with MessageStore.open(tmp_path / "s", small_config()) as store:
        store.create_topic("wide", COUNT)
        store.writer.append_batch(records)
    with StoreWriter.open(tmp_path / "s", small_config()) as writer:
        assert first_offsets(writer, records) == {1}
        writer.delete_topic("wide")
        writer.create_topic("wide", COUNT)
        assert writer.describe_topic("wide")[1] == [(0, 0)] * COUNT
        assert first_offsets(writer, records) == {0}


UNITS_OF_A_FILE = 700


RECORD_SIZE = 100


@pytest.mark.parametrize("count", [0, 1, 409, 410, 411, 600, UNITS_OF_A_FILE])
@pytest.mark.parametrize("behind", [0, 1, 5, 300])
def test_a_queue_ends_after_the_last_unit_below_the_limit(
    tmp_path: Path, count: int, behind: int
) -> None:
    """Whether all units are read at once or the end is searched for."""
    units = b"".join(
        (RECORD_SIZE * number).to_bytes(8) + RECORD_SIZE.to_bytes(4) + bytes(8)
        for number in range(count)
    )
    files = OpenQueueFiles(FileSystem(), tmp_path, file_size=UNITS_OF_A_FILE * UNIT_SIZE)
    if units:
        ConsumeQueue(files, "t", 7).append(units)
    end = max(count - behind, 0)
    assert ConsumeQueue(files, "t", 7).find_end(RECORD_SIZE * end) == end
    files.close()
