"""A rebuild of a queue that finds no room waits for it; all else goes on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from fault_life import FaultLife

from storage.errors import QueueRebuilding
from storage.format.consume_entry import UNIT_SIZE

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
