"""A reader beside a running writer: it refuses a unit that no record confirms until the writer has rebuilt it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
import pytest
from engine_store import bodies_in, small_config
from flips import flip

from services.rpc.status import code_of, reason_of, retry_delay_ms
from storage import Message, MessageStore, StoreReader
from storage.errors import QueueRebuilding
from storage.format.consume_entry import UNIT_SIZE
from storage.message import PullResult, PullStatus
from storage.queues import rebuild as rebuild_module
from storage.queues.rebuild import QueueRebuild
from storage.testing import SteppedWorkers
from storage.view.queues import rebuild_requests
from storage.view.queues.units import as_units

UNITS_OF_A_FILE: Final = 20
COUNT: Final = 70
BAD: Final = 25
CONFIG: Final = small_config(consume_queue_file_size=UNITS_OF_A_FILE * UNIT_SIZE)


class Running:
    """A store of one queue whose writer runs by steps, and a reader of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workers = SteppedWorkers()
        self.store = MessageStore.open(directory, CONFIG, workers=self.workers)
        self.store.create_topic("t", 1)
        self.store.put_all([Message(topic="t", body=b"%d" % n, tag="a") for n in range(COUNT)])
        self.workers.settle()
        self.reader = StoreReader.open(directory)

    def close(self) -> None:
        self.reader.close()
        self.store.close()

    def file(self, queue_offset: int) -> Path:
        files = sorted((self.directory / "consumequeue/t/0").iterdir())
        return files[queue_offset // UNITS_OF_A_FILE]

    def flip(self, queue_offset: int, bit: int = 3) -> None:
        at = queue_offset % UNITS_OF_A_FILE * UNIT_SIZE + bit // 8
        flip(self.file(queue_offset), at, 0x80 >> bit % 8)

    def change_record(self, queue_offset: int, position: int) -> None:
        """Change a byte of a record, in the log."""
        unit = self.file(queue_offset).read_bytes()[queue_offset % UNITS_OF_A_FILE * UNIT_SIZE :]
        log = self.directory / "commitlog" / f"{0:020d}"
        flip(log, int.from_bytes(unit[:8], "big") + position)

    def pull(self, queue_offset: int) -> PullResult:
        return self.reader.pull("t", 0, queue_offset=queue_offset, max_messages=COUNT)

    @property
    def requests(self) -> list[str]:
        return [path.name for path in self.directory.glob("rebuilds/*")]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    opened = Running(tmp_path / "s")
    yield opened
    opened.close()


def bodies(result: PullResult) -> list[bytes]:
    return bodies_in(result.slices)


@pytest.mark.parametrize("bit", range(0, 96, 5))
def test_a_pull_returns_what_precedes_and_the_next_is_refused_until_the_rebuild(
    running: Running, bit: int
) -> None:
    whole = running.file(BAD).read_bytes()
    running.flip(BAD, bit)
    assert bodies(running.pull(0)) == [b"%d" % n for n in range(BAD)]
    for _ in range(2):
        with pytest.raises(QueueRebuilding, match="queue 0 of t is being rebuilt"):
            running.pull(BAD)
    assert running.requests == [f"0-{BAD}-t"]
    assert running.pull(COUNT).status is PullStatus.OFFSET_OVERFLOW_ONE
    assert bodies(running.pull(BAD + 1)) == [b"%d" % n for n in range(BAD + 1, COUNT)]

    running.workers.step("rebuild")

    assert running.requests == []
    assert running.file(BAD).read_bytes() == whole
    assert bodies(running.pull(BAD)) == [b"%d" % n for n in range(BAD, COUNT)]


def test_a_removed_file_is_made_again_with_all_its_units(running: Running) -> None:
    path = running.file(BAD)
    whole = path.read_bytes()
    path.unlink()
    with pytest.raises(QueueRebuilding):
        running.pull(BAD)

    running.workers.step("rebuild")

    assert path.read_bytes() == whole
    assert bodies(running.pull(0)) == [b"%d" % n for n in range(COUNT)]


def test_a_damaged_record_is_said_at_once_and_nobody_is_asked(running: Running) -> None:
    running.change_record(BAD, 95)
    result = running.pull(0)
    assert [damage.queue_offset for damage in result.damaged] == [BAD]
    assert len(bodies(result)) == COUNT - 1
    assert running.requests == []


def test_without_a_writer_the_reader_rebuilds_in_memory(running: Running) -> None:
    running.flip(BAD)
    with pytest.raises(QueueRebuilding):
        running.pull(BAD)
    running.store.close()
    assert bodies(running.pull(0)) == [b"%d" % n for n in range(COUNT)]


def test_a_writer_that_does_not_rebuild_hides_nothing_for_good(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.flip(BAD)
    with pytest.raises(QueueRebuilding):
        running.pull(BAD)
    monkeypatch.setattr(rebuild_requests, "WAIT_S", 0.0)
    assert bodies(running.pull(BAD)) == [b"%d" % n for n in range(BAD, COUNT)]


def test_the_refusal_is_unavailable_with_a_reason_and_a_delay(running: Running) -> None:
    running.flip(BAD)
    with pytest.raises(QueueRebuilding) as refused:
        running.pull(BAD)
    assert code_of(refused.value) is grpc.StatusCode.UNAVAILABLE
    assert reason_of(refused.value) == "QUEUE_REBUILDING"
    assert retry_delay_ms(refused.value) == 500


def cut_store(directory: Path, units_of_a_file: int) -> tuple[MessageStore, SteppedWorkers]:
    """A store of two topics with 150 messages each, whose first log file was deleted."""
    config = small_config(consume_queue_file_size=units_of_a_file * UNIT_SIZE)
    with MessageStore.open(directory, config) as store:
        store.create_topic("t", 1)
        store.create_topic("u", 1)
        for n in range(150):
            bodies = {"u": b"z" * 400, "t": b"%d" % n * 20}
            store.put_all([Message(topic=topic, body=body) for topic, body in bodies.items()])
    sorted((directory / "commitlog").iterdir())[0].unlink()
    workers = SteppedWorkers()
    store = MessageStore.open(directory, config, workers=workers)
    workers.settle()
    return store, workers


def test_a_rebuild_leaves_the_units_of_deleted_records_as_they_are(tmp_path: Path) -> None:
    """Else they point at records that are left, of any topic, and the queue begins too early."""
    store, workers = cut_store(tmp_path / "s", 200)
    with store, StoreReader.open(tmp_path / "s") as reader:
        first = reader.min_offset("t", 0)
        assert first > 0
        file = tmp_path / "s/consumequeue/t/0/00000000000000000000"
        before = file.read_bytes()
        flip(file, first * UNIT_SIZE + 7)
        with pytest.raises(QueueRebuilding):
            reader.pull("t", 0, queue_offset=first)
        workers.step("rebuild")

        assert file.read_bytes() == before
        assert reader.min_offset("t", 0) == first
        assert reader.pull("t", 0, queue_offset=first, max_messages=200).record_count == 150 - first


def test_a_topic_that_is_created_again_meanwhile_gets_no_unit_of_the_earlier_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_offset = running.store.status().appended_offset
    correct = rebuild_module._correct_units
    recreated: list[int] = []

    def recreated_before(*arguments: Any) -> int:
        if not recreated:
            running.store.delete_topic("t")
            running.store.create_topic("t", 1)
            again = [Message(topic="t", body=b"again %d" % n) for n in range(COUNT)]
            recreated.extend(put.queue_offset for put in running.store.put_all(again))
            running.workers.step("dispatch")
        return correct(*arguments)

    running.flip(BAD)
    with pytest.raises(QueueRebuilding):
        running.pull(BAD)
    monkeypatch.setattr(rebuild_module, "_correct_units", recreated_before)
    running.workers.step("rebuild")

    assert recreated == list(range(COUNT))
    files = sorted((running.directory / "consumequeue/t/0").iterdir())
    units = as_units(b"".join(path.read_bytes() for path in files))[:COUNT]
    assert np.all(units["offset"] >= end_offset)
    assert bodies(running.pull(0)) == [b"again %d" % n for n in range(COUNT)]


def test_a_request_that_fails_keeps_no_other_waiting(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.store.create_topic("u", 1)
    (running.directory / "rebuilds").mkdir()
    for topic in ("t", "u"):
        (running.directory / f"rebuilds/0-0-{topic}").touch()
    rebuild = QueueRebuild.rebuild

    def failing(self: QueueRebuild, topic: str, *where: int) -> int:
        if topic == "t":
            raise OSError(5, "it cannot be read")
        return rebuild(self, topic, *where)

    monkeypatch.setattr(QueueRebuild, "rebuild", failing)
    running.workers.step("rebuild")

    assert running.requests == ["0-0-t"]
