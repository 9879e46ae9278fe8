"""The log read in windows of any size is what a walk through whole files finds."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bench.resident import cached_bytes
from storage import MessageStore, StoreConfig
from storage.files.filesystem import FileSystem
from storage.files.uncached import PAGE_SIZE, aligned_array, read_uncached
from storage.kernels.columns import COMMIT_OFFSET
from storage.message import Message
from storage.scrub.log_windows import LogWindows
from storage.view.log.commit_log import ListedLog
from storage.view.log.walk import DamagedRange, RecordRun, walk_log

CONFIG = StoreConfig(
    commit_log_file_size=1 << 18, consume_queue_file_size=4000, index_slot_count=7,
    index_entry_count=500,
)  # fmt: skip
Found = tuple[list[int], list[tuple[int, int]]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log")
    dice = random.Random(5)
    with MessageStore.open(path, CONFIG) as store:
        store.create_topic("t", 2)
        for _ in range(120):
            store.put(Message(topic="t", body=dice.randbytes(dice.choice((10, 900, 30_000)))))
    return path


def by_windows(directory: Path, end: int, window: int) -> Found:
    log = LogWindows(FileSystem(), directory / "commitlog", window=window)
    offsets: list[int] = []
    damage: list[tuple[int, int]] = []
    while log.position < end:
        for met in log.step(end):
            if isinstance(met, RecordRun):
                offsets += met.rows[:, COMMIT_OFFSET].tolist()
            else:
                damage.append((met.begin_offset, met.end_offset))
    return offsets, damage


def by_walk(directory: Path, end: int) -> Found:
    log = ListedLog(FileSystem(), directory / "commitlog")
    offsets: list[int] = []
    damage: list[tuple[int, int]] = []
    for step in walk_log(log, 0, end):
        if isinstance(step, RecordRun):
            offsets += step.rows[:, COMMIT_OFFSET].tolist()
        elif isinstance(step, DamagedRange):
            damage.append((step.begin_offset, step.end_offset))
    return offsets, damage


def end_of(directory: Path) -> int:
    log = ListedLog(FileSystem(), directory / "commitlog")
    return max(
        step.end_offset for step in walk_log(log, 0, log.end_offset) if isinstance(step, RecordRun)
    )


@pytest.mark.parametrize("window", [4096, 10_000, 1 << 16, 1 << 22])
def test_every_record_is_met_once(directory: Path, window: int) -> None:
    end = end_of(directory)
    offsets, damage = by_windows(directory, end, window)
    assert (offsets, damage) == by_walk(directory, end)
    assert len(offsets) == 120
    assert damage == []


@pytest.mark.parametrize("seed", range(25))
def test_damage_is_met_where_a_walk_meets_it(directory: Path, tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    end = end_of(directory)
    (tmp_path / "commitlog").mkdir()
    files = sorted((directory / "commitlog").iterdir())
    for path in files:
        (tmp_path / "commitlog" / path.name).write_bytes(path.read_bytes())
    for _ in range(dice.choice((1, 3, 10))):
        path = tmp_path / "commitlog" / dice.choice(files[:3]).name
        content = bytearray(path.read_bytes())
        at = dice.randrange(len(content))
        length = dice.choice((1, 1, 4096))
        content[at : at + length] = dice.randbytes(len(content[at : at + length]))
        path.write_bytes(content)
    if seed % 8 == 0:
        (tmp_path / "commitlog" / files[1].name).unlink()
    last = max(by_walk(tmp_path, end)[0])

    assert by_windows(tmp_path, last, dice.choice((4096, 1 << 16, 1 << 22))) == by_walk(
        tmp_path, last
    )


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "not aligned"])
def test_the_device_is_read_where_memory_fits(tmp_path: Path, offset: int) -> None:
    """Then nothing of it is left in the page cache, where the file system can do that."""
    path = tmp_path / "file"
    content = random.Random(1).randbytes(64 * PAGE_SIZE + 100)
    path.write_bytes(content)
    file = FileSystem().open(path, writable=True)
    file.sync_all()
    os.posix_fadvise(file._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    before = cached_bytes([path])
    into = aligned_array(len(content) + PAGE_SIZE)[offset:]

    count = read_uncached(file._descriptor, into, 0)

    assert into[:count].tobytes() == content
    if not offset:
        assert cached_bytes([path]) <= before + PAGE_SIZE
