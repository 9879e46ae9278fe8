"""Where a start finds that queues end, and which directories it counts as queues."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engine_store import record, small_config

from storage.files.filesystem import OsFileSystem
from storage.format.consume_entry import UNIT_SIZE
from storage.queues.consume_queue import ConsumeQueue
from storage.queues.queue_files import OpenQueueFiles
from storage.testing import SteppedClock, SteppedWorkers
from storage.view.log.recovery_cases import Start
from storage.writer import StoreWriter

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
    files = OpenQueueFiles(OsFileSystem(), tmp_path, file_size=UNITS_OF_A_FILE * UNIT_SIZE)
    if units:
        ConsumeQueue(files, "t", 7).append(units)
    end = max(count - behind, 0)
    assert ConsumeQueue(files, "t", 7).find_end(RECORD_SIZE * end) == end
    files.close()


def test_a_directory_with_another_name_for_a_queue_is_not_counted(tmp_path: Path) -> None:
    """Or no count would agree, and each start would read the whole log."""

    def opened(directory: Path) -> StoreWriter:
        return StoreWriter.open(
            directory, small_config(), clock=SteppedClock(), workers=SteppedWorkers()
        )

    writer = opened(tmp_path / "running")
    writer.create_topic("t", 2)
    writer.append_batch(record("t", 0) + record("t", 1))
    writer._engine.settle()
    writer._engine.checkpointer.checkpoint()
    shutil.copytree(tmp_path / "running", tmp_path / "killed")
    writer.close()
    for name in ("01", "000", "99999999999"):
        (tmp_path / "killed" / "consumequeue" / "t" / name).mkdir()
    for _ in range(2):
        killed = opened(tmp_path / "killed")
        assert killed._engine.recovered.start is Start.BOUNDED
        killed._engine._abandon()
