"""storage.testing as its users have it: what a stop leaves, and that bugs of theirs are found."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.errors import StoreFull
from storage.files.filesystem import FileSystem
from storage.testing import ProcessStopped, SimulatedDisk, SteppedClock, every_stop


def new_disk(directory: Path, seed: int = 1) -> SimulatedDisk:
    count = len(list(directory.iterdir())) if directory.exists() else 0
    return SimulatedDisk(directory / f"disk-{count}", random.Random(seed))


def write(disk: SimulatedDisk, name: str, data: bytes, *, syncs: bool) -> None:
    file = disk.create(disk.root / name, 0, allocate=False)
    file.pwrite(data, 0)
    if syncs:
        file.sync_all()
        disk.sync_directory(disk.root)
    file.close()


def read(disk: SimulatedDisk, name: str) -> bytes | None:
    path = disk.root / name
    return path.read_bytes() if path.exists() else None


def test_a_cut_takes_what_was_not_synced_and_a_kill_takes_nothing(tmp_path: Path) -> None:
    for stop, wanted in (
        (lambda disk: disk.cut_power("none"), None),
        (lambda disk: disk.cut_power("all"), b"lost"),
        (lambda disk: disk.kill(), b"lost"),
    ):
        disk = new_disk(tmp_path)
        write(disk, "kept", b"kept", syncs=True)
        write(disk, "lost", b"lost", syncs=False)
        after = stop(disk)
        assert (read(after, "kept"), read(after, "lost")) == (b"kept", wanted)
        with pytest.raises(ProcessStopped):
            disk.sync_directory(disk.root)
        after.close()


def test_what_a_kill_left_unsynced_a_later_cut_takes(tmp_path: Path) -> None:
    disk = new_disk(tmp_path)
    write(disk, "lost", b"lost", syncs=False)
    assert read(disk.kill().cut_power("none"), "lost") is None


def test_stores_into_a_map_are_durable_with_the_next_sync_only(tmp_path: Path) -> None:
    for syncs in (True, False):
        disk = new_disk(tmp_path)
        file = disk.create(disk.root / "f", 4096, allocate=True)
        file.map(writable=True).array[:3] = 7
        if syncs:
            file.sync()
        left = read(disk.cut_power("none"), "f")
        assert left == (b"\7\7\7" if syncs else bytes(3)) + bytes(4093)


def test_a_cut_tears_writes_by_sectors_and_the_seed_says_how(tmp_path: Path) -> None:
    def left(seed: int, number: int) -> bytes | None:
        disk = new_disk(tmp_path / str(number), seed)
        write(disk, "f", b"a" * 8192, syncs=True)
        disk.open(disk.root / "f", writable=True).pwrite(b"b" * 8192, 0)
        return read(disk.cut_power("mixed"), "f")

    found = [left(seed, seed) for seed in range(40)]
    assert found == [left(seed, 40 + seed) for seed in range(40)]
    torn = [each for each in found if each and b"a" in each and b"b" in each]
    assert len(torn) > 5
    assert all(re.fullmatch(rb"(a{512}|b{512})*", each) for each in torn)


def test_renames_that_no_directory_sync_covered_may_be_undone(tmp_path: Path) -> None:
    disk = new_disk(tmp_path)
    write(disk, "old", b"1", syncs=True)
    disk.rename(disk.root / "old", disk.root / "new")
    after = disk.cut_power("none")
    assert (read(after, "old"), read(after, "new")) == (b"1", None)


def test_faults_come_where_and_as_often_as_asked_for(tmp_path: Path) -> None:
    disk = new_disk(tmp_path)
    disk.fault, disk.faults_left, disk.fault_at = (errno.ENOSPC, 0), 1, "full"
    write(disk, "other", b"x", syncs=True)
    with pytest.raises(StoreFull):
        write(disk, "full", b"x", syncs=True)
    disk.fault, disk.faults_left, disk.fault_at = (errno.EIO, 0), 1, ""
    with pytest.raises(OSError, match="Input/output"):
        write(disk, "failed", b"x", syncs=True)
    write(disk, "after", b"x", syncs=True)


def test_after_a_failed_sync_a_second_one_proves_nothing(tmp_path: Path) -> None:
    """As kernels do, the disk takes for written what it could not write."""
    disk = new_disk(tmp_path)
    file = disk.create(disk.root / "f", 4096, allocate=True)
    file.map(writable=True).array[:3] = 7
    disk.fault, disk.faults_left, disk.fault_leaves = (errno.EIO, 0), 1, "none"
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert read(disk.cut_power("none"), "f") == bytes(4096)


def test_a_cut_is_another_boot_and_a_kill_is_none(tmp_path: Path) -> None:
    disk = new_disk(tmp_path)
    killed = disk.kill()
    assert disk.boot_id() == killed.boot_id() != killed.cut_power().boot_id()
    assert len(disk.boot_id()) == len(FileSystem().boot_id()) == 16


def test_time_passes_by_looking() -> None:
    first, second = SteppedClock(), SteppedClock()
    times = [(first.now_ms(), first.monotonic()) for _ in range(3)]
    assert times == [(second.now_ms(), second.monotonic()) for _ in range(3)]
    assert times == sorted(times) and len({*times}) == 3
    before = first.now_ms()
    first.advance(60)
    assert first.now_ms() == before + 60_001


def replace_without_sync(disk: SimulatedDisk) -> None:
    """The oldest mistake there is: the new file is renamed before its bytes are on the disk."""
    disk.write_atomically(disk.root / "state", b"old" * 1000)
    file = disk.create(disk.root / "state.tmp", 0, allocate=False)
    file.pwrite(b"new" * 1000, 0)
    file.close()
    disk.rename(disk.root / "state.tmp", disk.root / "state")
    disk.sync_directory(disk.root)


def replace_in_order(disk: SimulatedDisk) -> None:
    for data in (b"old" * 1000, b"new" * 1000):
        disk.write_atomically(disk.root / "state", data)


@pytest.mark.parametrize("kills", [True, False])
@pytest.mark.parametrize("work", [replace_without_sync, replace_in_order])
def test_every_stop_of_some_work_is_met_and_a_mistake_is_found(
    tmp_path: Path, work: Callable[[SimulatedDisk], None], kills: bool
) -> None:
    steps, found, contents = [], 0, set()
    for seed in range(5):
        for stop in every_stop(tmp_path / "machine", work, kills=kills, seed=seed):
            steps.append((seed, stop.step))
            state = read(stop.disk, "state")
            contents.add(state and state[:3])
            found += state not in (None, b"old" * 1000, b"new" * 1000)
        assert not stop.was_stopped and state is not None and (kills or state != b"old" * 1000)
    per_seed = len(steps) // 5
    assert per_seed > 6
    assert steps == [(seed, step + 1) for seed in range(5) for step in range(per_seed)]
    assert {None, b"old", b"new"} <= contents
    assert bool(found) == (work is replace_without_sync and not kills)


def test_what_the_work_raises_by_itself_is_raised(tmp_path: Path) -> None:
    def work(disk: SimulatedDisk) -> None:
        write(disk, "f", b"x", syncs=True)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        list(every_stop(tmp_path / "machine", work))
