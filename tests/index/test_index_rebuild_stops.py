"""An index file that is made again in the place of a damaged one: kills and power cuts at any step."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from engine_store import small_config
from index_support import put_keys

from storage.clock import SystemClock
from storage.files.filesystem import FileSystem
from storage.format.index import entry_position
from storage.indexer import StoreIndexer
from storage.reader import StoreReader
from storage.testing import SimulatedDisk, SteppedWorkers, every_stop
from storage.writer import StoreWriter

SLOTS, ENTRIES = 30, 40
CONFIG = small_config(index_slot_count=SLOTS, index_entry_count=ENTRIES, scrub_interval_ms=0)
KEYS = [f"key-{n}" for n in range(50)]
STRIDE = int(os.environ.get("STRIDE", "9"))  # of the steps at which it is stopped


def repair(store: Path, filesystem: FileSystem) -> None:
    """Open the store, and have every file of its index checked and made right."""
    with (
        StoreWriter.open(store, CONFIG, filesystem=filesystem, workers=SteppedWorkers()),
        StoreIndexer.open(store, CONFIG, filesystem=filesystem, clock=SystemClock()) as indexer,
    ):
        indexer.check_all()
        for _ in range(60):
            indexer.step()


def contents(store: Path) -> list[tuple[str, bytes]]:
    return [(path.name, path.read_bytes()) for path in sorted((store / "index").iterdir())]


def silent_losses(store: Path) -> list[str]:
    """Return the keys that are not found although no range is named."""
    with StoreReader.open(store) as reader:
        answers = {key: reader.query_by_key("t", key) for key in KEYS}
    return [key for key, found in answers.items() if not (found.record_count or found.uncovered)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("whole") / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, [(key,) for key in KEYS])
    repair(store, FileSystem())
    assert len(contents(store)) == 3
    return store


@pytest.mark.parametrize("kills", [True, False])
def test_what_is_left_of_a_rebuild_is_repaired(tmp_path: Path, whole: Path, kills: bool) -> None:
    wanted = contents(whole)

    def work(disk: SimulatedDisk) -> None:
        for path in whole.iterdir():
            (shutil.copytree if path.is_dir() else shutil.copy)(path, disk.root / path.name)
            disk.trust(disk.root / path.name)
        damaged = disk.root / "index" / wanted[1][0]
        data = bytearray(damaged.read_bytes())
        data[entry_position(SLOTS, 5) : entry_position(SLOTS, 30)] = bytes(500)
        damaged.write_bytes(data)
        disk.trust(damaged)
        repair(disk.root, disk)

    checked = 0
    for run in every_stop(tmp_path / "runs", work, kills=kills, step_stride=STRIDE):
        store = run.disk.root
        if not run.was_stopped:
            assert contents(store) == wanted
            break
        repair(store, FileSystem())
        assert contents(store) == wanted, run.step
        assert silent_losses(store) == []
        checked += 1
    assert checked > 40 // STRIDE
