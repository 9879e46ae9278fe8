"""What is synced of many queue files, and that it is enough."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from storage.queues.queue_files import SYNCED_ONE_BY_ONE_MAX, OpenQueueFiles
from storage.testing.disk import SimulatedDisk

FILE_SIZE = 4096
UNIT = b"unit" * 5


def written(disk: SimulatedDisk, count: int) -> OpenQueueFiles:
    """Return files of so many queues, each with a unit that is not durable."""
    disk.make_directory(disk.root / "consumequeue")
    files = OpenQueueFiles(disk, disk.root / "consumequeue", file_size=FILE_SIZE)
    for number in range(count):
        files.open_for_writing(path_of(disk, number), exists=False).pwrite(UNIT, 0)
    return files


def path_of(disk: SimulatedDisk, number: int) -> Path:
    return disk.root / "consumequeue" / f"topic{number % 7}" / str(number) / "0"


def syncs(disk: SimulatedDisk) -> int:
    return sum(" sync " in step for step in disk.trace)


@pytest.mark.parametrize("count", [1, SYNCED_ONE_BY_ONE_MAX // 4, SYNCED_ONE_BY_ONE_MAX * 10])
def test_units_and_names_of_new_queues_survive_a_power_cut_after_one_sync(
    tmp_path: Path, count: int
) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    written(disk, count).sync()
    after = disk.cut_power("none")
    for number in range(count):
        assert path_of(after, number).read_bytes()[: len(UNIT)] == UNIT


def test_a_unit_that_was_not_synced_is_gone_with_its_queue(tmp_path: Path) -> None:
    """The test before this one can fail: nothing else makes new queues durable."""
    disk = SimulatedDisk(tmp_path / "disk")
    written(disk, 1)
    assert not path_of(disk.cut_power("none"), 0).exists()


def test_many_queues_cost_as_many_syncs_as_a_few(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    files = written(disk, SYNCED_ONE_BY_ONE_MAX * 10)
    before = syncs(disk)
    files.sync()
    assert syncs(disk) - before == 3


def test_new_queues_are_written_without_a_sync(tmp_path: Path) -> None:
    """The dispatch thread does not wait for the device: the checkpoint syncs names with all else."""
    disk = SimulatedDisk(tmp_path / "disk")
    disk.make_directory(disk.root / "consumequeue")
    before = syncs(disk)
    written(disk, 5)
    assert syncs(disk) == before


def test_a_sync_of_many_queues_that_fails_is_an_error(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    files = written(disk, SYNCED_ONE_BY_ONE_MAX * 2)
    disk.fault, disk.faults_left = (errno.EIO, disk.step_count), 1
    with pytest.raises(OSError, match="Input/output"):
        files.sync()
