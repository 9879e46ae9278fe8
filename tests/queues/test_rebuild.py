"""Units that are not what the log says are written again, on disk, as they were."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Final

import pytest
from engine_store import small_config
from fault_life import FaultLife
from flips import flip

from storage import Message, MessageStore
from storage.errors import QueueRebuilding
from storage.files.filesystem import FileSystem
from storage.format.consume_entry import UNIT_SIZE
from storage.queues.queue_table import QueueTable
from storage.queues.rebuild import rebuild_units
from storage.view.log.commit_log import ListedLog

COUNT: Final = 400


FILE_SIZE: Final = 300 * UNIT_SIZE


CONFIG: Final = small_config(consume_queue_file_size=FILE_SIZE)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path, CONFIG) as store:
        store.create_topic("t", 1)
        store.create_topic("other", 1)
        for n in range(COUNT):
            store.put(Message(topic="t", body=b"%d" % n, tag=f"tag{n % 3}", queue_id=0))
            store.put(Message(topic="other", body=b"x"))
    return tmp_path


def queue_bytes(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "consumequeue/t/0").iterdir())]


def repair(store: Path, begin: int = 0, end: int = COUNT) -> int:
    log = ListedLog(FileSystem(), store / "commitlog")
    queues = QueueTable(FileSystem(), store / "consumequeue", file_size=FILE_SIZE)
    queues.end_recovery(log.end_offset)
    try:
        return rebuild_units(
            log, queues, "t", 0, begin, end, commit_range=(log.start_offset, log.end_offset)
        )
    finally:
        queues.close()


def test_units_that_are_right_are_not_written(store: Path) -> None:
    assert repair(store) == 0


@pytest.mark.parametrize("seed", range(10))
def test_flipped_units_become_what_they_were(store: Path, seed: int) -> None:
    rng = random.Random(seed)
    whole = queue_bytes(store)
    hit = rng.sample(range(COUNT - 1), 8)
    for queue_offset in hit:
        path = sorted((store / "consumequeue/t/0").iterdir())[queue_offset // 300]
        flip(path, queue_offset % 300 * UNIT_SIZE + rng.randrange(UNIT_SIZE), 1 << rng.randrange(8))
    if seed % 2:
        assert repair(store) == 8
    else:
        assert sum(repair(store, each, each + 1) for each in hit) == 8
    assert queue_bytes(store) == whole
    assert repair(store) == 0


def test_a_deleted_queue_is_not_brought_back(store: Path) -> None:
    log = ListedLog(FileSystem(), store / "commitlog")
    queues = QueueTable(FileSystem(), store / "consumequeue", file_size=FILE_SIZE)
    queues.end_recovery(log.end_offset)
    queue = queues.get("t", 0)
    queues.remove_topic("t")
    assert not queue.overwrite(0, bytes(UNIT_SIZE))
    assert not (store / "consumequeue/t").exists()
    queues.close()


FAULTS = 1_000


def test_a_rebuild_without_room_is_tried_again_and_loses_nothing(tmp_path: Path) -> None:
    life = FaultLife(tmp_path)
    life.create()
    units_of_a_file = life.store.writer.config.consume_queue_file_size // UNIT_SIZE
    life.put(2 * units_of_a_file + 3)
    life.step("dispatch", "checkpoint")
    path = sorted((life.directory / "consumequeue/t/0").iterdir())[1]
    whole = path.read_bytes()
    path.unlink()
    life.disk.trust(path.parent)
    with pytest.raises(QueueRebuilding):
        life.store.pull("t", 0, queue_offset=units_of_a_file)

    life.disk.fault = (errno.ENOSPC, life.disk.step_count)
    life.disk.faults_left = FAULTS
    life.step("rebuild")
    assert life.disk.faults_left < FAULTS
    with pytest.raises(QueueRebuilding):
        life.store.pull("t", 0, queue_offset=units_of_a_file)
    behind = life.store.pull("t", 0, queue_offset=2 * units_of_a_file, max_messages=5)
    assert len(behind.queue_offsets) == 3

    life.disk.fault = None
    life.step("rebuild")
    assert path.read_bytes() == whole
    life.put(1)
    life.require_all()
    life.step("dispatch", "checkpoint")
    life.require_durable()
