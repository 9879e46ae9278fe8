"""Queue files that are removed beside a writer, before it has noticed: a reader looks the queue up in the log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage import Message, MessageStore, StoreConfig, StoreReader
from storage.format.record import decode_record
from storage.leases.leases import Leases
from storage.leases.values import ReceiveQuestion
from storage.tables.groups import GroupConfig
from storage.testing import SteppedWorkers
from storage.view.queues import reach
from storage.view.queues.reach import QueueReach
from storage.view.queues.units import prefill_units

CONFIG = StoreConfig(
    commit_log_file_size=1 << 16, consume_queue_file_size=400, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
COUNT = 65


@pytest.fixture(name="store")
def _store(tmp_path: Path) -> Iterator[MessageStore]:
    with MessageStore.open(tmp_path, CONFIG, workers=SteppedWorkers()) as store:
        store.create_topic("t", 3)
        store.put_all(
            [Message(topic="t", body=b"%d" % n, queue_id=n % 2) for n in range(2 * COUNT)]
        )
        store.writer._engine.settle()
        yield store


@pytest.fixture(name="walks")
def _walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts how often a reader reads the log for it."""
    walks: list[int] = []
    walk = QueueReach._walk

    def counted(self: QueueReach, *arguments: Any) -> None:
        walks.append(1)
        walk(self, *arguments)

    monkeypatch.setattr(QueueReach, "_walk", counted)
    return walks


def files(directory: Path) -> list[Path]:
    return sorted((directory / "consumequeue" / "t" / "0").iterdir())


def first(directory: Path) -> None:
    files(directory)[0].unlink()


def every(directory: Path) -> None:
    for path in files(directory):
        path.unlink()


def record_count(reader: StoreReader, queue_id: int) -> int:
    count, queue_offset = 0, 0
    while queue_offset < reader.max_offset("t", queue_id):
        result = reader.pull("t", queue_id, queue_offset=queue_offset, max_messages=1_000)
        assert result.next_offset > queue_offset
        count, queue_offset = count + result.record_count, result.next_offset
    return count


@pytest.mark.parametrize("remove", [first, every])
def test_a_new_reader_serves_every_message(
    store: MessageStore, tmp_path: Path, walks: list[int], remove: Callable[[Path], None]
) -> None:
    remove(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert reader.min_offset("t", 0) == 0
        assert [record_count(reader, queue_id) for queue_id in (0, 1)] == [COUNT, COUNT]
        assert len(walks) == 1
        assert reader.commit_offset("g", "t", 0, 5) == 5
        assert reader.committed_offset("g", "t", 0) == 5


def test_what_is_stored_next_is_served(store: MessageStore, tmp_path: Path) -> None:
    first(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert record_count(reader, 0) == COUNT
        store.put_all([Message(topic="t", body=b"next", queue_id=0)] * 30)  # into another file
        store.writer._engine.settle()
        assert record_count(reader, 0) == COUNT + 30


def test_whole_queues_and_empty_ones_are_not_looked_up(
    store: MessageStore, tmp_path: Path, walks: list[int]
) -> None:
    with StoreReader.open(tmp_path) as reader:
        assert [reader.max_offset("t", queue_id) for queue_id in (0, 1, 2)] == [COUNT, COUNT, 0]
        assert reader.min_offset("t", 2) == 0
    assert walks == []


def test_a_queue_that_is_being_made_is_not_looked_up(
    store: MessageStore, tmp_path: Path, walks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "NEW_QUEUE_S", 1.0)
    (tmp_path / "consumequeue" / "t" / "2").mkdir()
    path = tmp_path / "consumequeue" / "t" / "2" / f"{0:020d}"
    writing = threading.Timer(0.2, path.write_bytes, [bytes(400)])
    writing.start()
    with StoreReader.open(tmp_path) as reader:
        assert reader.max_offset("t", 2) == 0
    writing.join()
    assert walks == []


def test_a_queue_that_begins_late_is_looked_up_once(
    store: MessageStore, tmp_path: Path, walks: list[int]
) -> None:
    """As in a store that a broker left so: its log begins at 0, and it has no record of the first file."""
    with StoreReader.open(tmp_path) as reader:
        view = reader.queue_view("t", 1)
        look = view._reach
        assert look(400, 0) is not None  # the log has records before queue offset 20
        found = reader._queues._reach
        found._walked.found["t", 1] = reach.Reach(20, COUNT, 0)
        assert look(400, 0) is None
        found.forget()
        assert look(400, 0) is None
    assert len(walks) == 1


def commit_offset_of(directory: Path, queue_offset: int) -> int:
    with StoreReader.open(directory) as reader:
        unit = reader.queue_view("t", 0).unit(queue_offset)
    assert unit is not None
    return unit.commit_offset


@pytest.mark.parametrize("kept", [1, 5, 19, 25])
@pytest.mark.parametrize("file_count", [1, 2])
def test_in_a_store_that_has_deleted_messages_no_group_misses_what_is_left(
    store: MessageStore, tmp_path: Path, walks: list[int], file_count: int, kept: int
) -> None:
    store.writer._engine.positions.publish_min_commit_offset(commit_offset_of(tmp_path, kept))
    for path in files(tmp_path)[:file_count]:
        path.unlink()
    with StoreReader.open(tmp_path) as reader:
        for _ in range(3):
            assert reader.min_offset("t", 0) == kept
        assert reader.commit_offset("g", "t", 0, 0) == kept
        assert record_count(reader, 0) == COUNT - kept
        leases = Leases(reader)
        question = ReceiveQuestion(max_messages=32, queue_ids=(0,))
        batch = leases.receive(GroupConfig(name="g"), "t", question)
        leases.close()
        assert decode_record(batch.slices[0], 0).queue_offset == kept
    assert len(walks) == int(kept < 20 * file_count)


def test_a_first_file_that_was_deleted_with_its_records_is_looked_up_once(
    store: MessageStore, tmp_path: Path, walks: list[int]
) -> None:
    first(tmp_path)
    min_commit_offset = commit_offset_of(tmp_path, 20) - 1  # the record before it lies there
    walks.clear()
    store.writer._engine.positions.publish_min_commit_offset(min_commit_offset)
    with StoreReader.open(tmp_path) as reader:
        for _ in range(3):
            assert reader.min_offset("t", 0) == 20
            reader.queue_view("t", 0)._min_key = None
    assert len(walks) == 1


def test_first_units_without_a_record_begin_the_queue(
    store: MessageStore, tmp_path: Path, walks: list[int]
) -> None:
    """Pre-fill units, of a queue that begins late: nothing is to be found before them."""
    first(tmp_path)
    path = files(tmp_path)[0]
    path.write_bytes(prefill_units(3).tobytes() + path.read_bytes()[60:])
    store.writer._engine.positions.publish_min_commit_offset(1)
    with StoreReader.open(tmp_path) as reader:
        reader.min_offset("t", 0)
    assert walks == []


def test_a_topic_made_again_begins_at_its_own_records(store: MessageStore, tmp_path: Path) -> None:
    store.delete_topic("t")
    store.create_topic("t", 2)
    store.put_all([Message(topic="t", body=b"new", queue_id=0)] * 45)
    store.writer._engine.settle()
    first(tmp_path)
    with StoreReader.open(tmp_path) as reader:
        assert record_count(reader, 0) == 45
