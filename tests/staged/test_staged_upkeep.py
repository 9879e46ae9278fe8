"""The upkeep of staged commits: a worker like the others, which a failure does not end."""

from __future__ import annotations

from contextlib import suppress
from errno import ENOSPC
from pathlib import Path
from typing import Any

import pytest
from engine_store import small_config
from staged_records import bodies_on_disk, intact_bodies_on_disk, stage
from steps_to_try import ALL_STEPS

from storage.errors import StoreFull
from storage.files.filesystem import OsFileSystem
from storage.testing import SimulatedDisk, SteppedWorkers, every_stop
from storage.writer import StoreWriter

BODIES = [b"%d " % n + b"x" * 20_000 for n in range(10)]


class _FullForTheLog(OsFileSystem):
    """Makes no log file while ``is_full``."""

    is_full = False

    def create(self, path: Path, size: int, **options: Any) -> Any:
        if self.is_full and "commitlog" in str(path):
            raise StoreFull(f"no space left for {path}")
        return super().create(path, size, **options)


def test_a_step_completes_what_a_full_disk_stopped(tmp_path: Path) -> None:
    filesystem, workers = _FullForTheLog(), SteppedWorkers()
    with StoreWriter.open(
        tmp_path / "s", small_config(), filesystem=filesystem, workers=workers
    ) as writer:
        writer.create_topic("t", 2)
        stage(writer.staged, "app", 0, "a", [[body] for body in BODIES])
        filesystem.is_full = True
        with pytest.raises(StoreFull):
            writer.staged.commit("app", 0, ["a"])
        workers.step("staged")
        assert writer.staged.status()[0].open[0].decided
        filesystem.is_full = False
        workers.step("staged")
        assert not writer.staged.status()[0].open
        assert writer.staged.commit("app", 0, ["a"])[1]
    assert bodies_on_disk(tmp_path / "s") == BODIES


class _Upkeep:
    """A commit that a full disk stops, and the step of the worker that completes it."""

    def __init__(self) -> None:
        self.is_staged = self.is_done = False

    def work(self, disk: SimulatedDisk) -> None:
        self.is_staged = self.is_done = False
        workers = SteppedWorkers()
        with StoreWriter.open(
            disk.root / "s", small_config(warm_ahead_bytes=0), filesystem=disk, workers=workers
        ) as writer:
            writer.create_topic("t", 2)
            stage(writer.staged, "app", 0, "a", [[body] for body in BODIES])
            self.is_staged = True
            disk.fault, disk.faults_left, disk.fault_at = (ENOSPC, 0), 1_000, "commitlog"
            with suppress(StoreFull):
                writer.staged.commit("app", 0, ["a"])
            assert disk.successor is not None or writer.staged.status()[0].open
            disk.fault = None
            workers.step("staged")
            self.is_done = not writer.staged.status()[0].open


@pytest.mark.parametrize("kills", [True, False])
def test_a_step_may_be_stopped_anywhere_and_stores_each_record_once(
    tmp_path: Path, kills: bool
) -> None:
    upkeep, completed = _Upkeep(), 0
    for stop in every_stop(
        tmp_path / "machine", upkeep.work, kills=kills, step_stride=1 if ALL_STEPS else 9
    ):
        store = stop.disk.root / "s"
        if not upkeep.is_staged:
            continue
        with StoreWriter.open(
            store, small_config(), filesystem=stop.disk, workers=SteppedWorkers()
        ) as writer:
            _, already = writer.staged.commit("app", 0, ["a"])
        completed += already
        assert already or not upkeep.is_done
        assert sorted(intact_bodies_on_disk(store)) == sorted(BODIES), stop.step
    assert completed
    assert upkeep.is_done, "the run that nothing stopped"
