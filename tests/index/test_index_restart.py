"""Index files lost, a log that lost its end, power cuts: a restart makes the index of one go."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from engine_store import small_config
from index_support import contents, open_indexer, paths_of, put_keys, some_keys, work
from steps_to_try import steps_to_try

from storage.files.filesystem import FileSystem
from storage.format.checkpoint import (
    INDEXER_LIVE_POSITION,
    INDEXER_SLOT_POSITIONS,
    WRITER_LIVE_LAYOUT,
    WRITER_LIVE_POSITION,
    IndexerSlot,
)
from storage.format.index import IndexHeader
from storage.testing import SimulatedDisk
from storage.writer import StoreWriter

pytestmark = pytest.mark.usefixtures("instant_syncs")
SECTOR = 512
CONFIG = small_config(index_slot_count=20, index_entry_count=120)
ASYNC = small_config(
    index_slot_count=20, index_entry_count=120, flush_mode="async", flush_interval_ms=10**7
)


def run(directory: Path) -> None:
    with open_indexer(directory, CONFIG) as indexer:
        work(indexer)


def slot_of(directory: Path) -> IndexerSlot:
    page = (directory / "checkpoint").read_bytes()
    slots = [IndexerSlot.decode(page, position) for position in INDEXER_SLOT_POSITIONS]
    return max((slot for slot in slots if slot), key=lambda slot: slot.sequence)


def live_flushed_offset(directory: Path) -> int:
    page = (directory / "checkpoint").read_bytes()
    return int(WRITER_LIVE_LAYOUT.unpack_from(page, WRITER_LIVE_POSITION)[7])


def blank(directory: Path, *positions: int) -> None:
    """Zero sectors of the checkpoint page."""
    with (directory / "checkpoint").open("r+b") as page:
        for position in positions:
            page.seek(position)
            page.write(bytes(SECTOR))


def made_in_one_go(directory: Path, target: Path) -> list[bytes]:
    shutil.copytree(directory, target, ignore=shutil.ignore_patterns("index", "abort"))
    blank(target, INDEXER_LIVE_POSITION, *INDEXER_SLOT_POSITIONS)
    run(target)
    return contents(target)


def border_records(files: list[bytes]) -> list[int]:
    """Records that have keys at the end of one file and the begin of the next."""
    headers = [IndexHeader.decode(data) for data in files]
    return [
        after.begin_commit_offset
        for before, after in itertools.pairwise(headers)
        if before.end_commit_offset == after.begin_commit_offset
    ]


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, some_keys("a", 150, 6))
        put_keys(writer, [tuple(f"many-{n}" for n in range(260)), *some_keys("b", 100, 6)])
        run(directory)
    return directory


def test_files_that_a_broker_made_in_place_of_ours_are_taken_over(stopped: Path) -> None:
    wanted = contents(stopped)
    newest = paths_of(stopped)[-1]
    renamed = newest.with_name(f"{int(newest.name) + 5:017d}")
    newest.rename(renamed)

    with open_indexer(stopped, CONFIG, unclean=False) as indexer:
        work(indexer)

    assert contents(stopped) == wanted
    assert paths_of(stopped)[-1] == renamed


def cut_power(directory: Path, target: Path, flushed_offset: int) -> None:
    """Copy a store as a reboot finds it that lost all of the log which was not flushed."""
    shutil.copytree(directory, target)
    for path in (target / "commitlog").iterdir():
        begin = max(0, flushed_offset - int(path.name))
        with path.open("r+b") as log:
            size = log.seek(0, 2)
            if begin < size:
                log.seek(begin)
                log.write(bytes(size - begin))
    blank(target, WRITER_LIVE_POSITION, INDEXER_LIVE_POSITION)


def test_a_log_that_lost_its_end_loses_and_doubles_no_key_of_the_rest(tmp_path: Path) -> None:
    """The slot names no offset beyond what is durable of the log; the newest file is ahead of that."""
    directory, left = tmp_path / "store", tmp_path / "left"
    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, some_keys("a", 120, 6))
        run(directory)
        flushed_offset = writer.appended_offset
    with StoreWriter.open(directory, ASYNC) as writer:
        put_keys(writer, some_keys("lost", 150, 6))
        assert live_flushed_offset(directory) == flushed_offset
        with open_indexer(directory, CONFIG, durable_interval_ms=0) as indexer:
            work(indexer)
            assert indexer.indexed_offset == writer.appended_offset
            assert slot_of(directory).indexed_offset == flushed_offset
            cut_power(directory, left, flushed_offset)
    assert len(paths_of(left)) > 5

    with StoreWriter.open(left, CONFIG) as writer:
        assert writer.appended_offset == flushed_offset
        put_keys(writer, some_keys("new", 200, 6))
        run(left)
        wanted = made_in_one_go(left, tmp_path / "one-go")

    assert contents(left) == wanted


class _SameBoot(SimulatedDisk):
    """In the boot of this machine, in which the test's writer runs beside it."""

    boot_id = FileSystem.boot_id


class Left:
    """What a kill and some power cuts leave of a store at each step of an indexer."""

    def __init__(self, directory: Path, copies: Path, *, share: int) -> None:
        self.disk = _SameBoot(directory, random.Random(5))
        self.disk.on_step = self._stop
        self._directory = directory
        self._copies = copies
        self._left: list[tuple[str, Path]] = []
        self._share = share

    def _stop(self, label: str) -> None:
        for kills in (True, False, False, False):
            target = self._copies / str(len(self._left))
            self.disk.leave(target, kills=kills)
            how = "killed" if kills else "power cut"
            self._left.append((f"{len(self._left)}: {how} before {label}", target))

    def assert_all_become(self, wanted: list[bytes], *, at_least: int) -> None:
        assert len(self._left) > at_least
        page = (self._directory / "checkpoint").read_bytes()
        for label, target in steps_to_try(self._left, 5, start=self._share):
            with (target / "checkpoint").open("r+b") as file:  # the writer is there again
                file.seek(WRITER_LIVE_POSITION)
                file.write(page[WRITER_LIVE_POSITION:INDEXER_LIVE_POSITION])
            shutil.rmtree(target / "commitlog")
            (target / "commitlog").symlink_to(self._directory / "commitlog")
            run(target)

            assert contents(target) == wanted, label


def test_a_kill_or_power_cut_at_any_step_costs_and_doubles_no_key(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, some_keys("a", 60, 6))
    left = Left(directory, tmp_path, share=0)
    indexer = open_indexer(directory, CONFIG, durable_interval_ms=0, filesystem=left.disk)
    work(indexer)
    with StoreWriter.open(directory, CONFIG) as writer:
        put_keys(writer, some_keys("b", 60, 6))
    for name in ("commitlog", "consumequeue", "config", "checkpoint"):
        left.disk.trust(directory / name)
    work(indexer)
    indexer.close()
    wanted = made_in_one_go(directory, tmp_path / "one-go")
    assert contents(directory) == wanted and len(border_records(wanted)) > 1

    left.assert_all_become(wanted, at_least=120)
