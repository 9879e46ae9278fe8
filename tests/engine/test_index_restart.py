"""Index files lost, a log that lost its end, power cuts: a restart makes the index of one go."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

import pytest
from engine_store import small_config

from storage.clock import SystemClock
from storage.errors import StoreFull
from storage.files.filesystem import OsFile, OsFileSystem
from storage.format.checkpoint import (
    INDEXER_LIVE_POSITION,
    INDEXER_SLOT_POSITIONS,
    WRITER_LIVE_LAYOUT,
    WRITER_LIVE_POSITION,
    BrokerFields,
    IndexerSlot,
)
from storage.format.index import IndexHeader
from storage.index_file import list_index_files
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.writer import StoreWriter

SECTOR = 512
CONFIG = small_config(index_slot_count=20, index_entry_count=120)
ASYNC = small_config(
    index_slot_count=20, index_entry_count=120, flush_mode="async", flush_interval_ms=10**7
)


def put(writer: StoreWriter, count: int, prefix: str) -> None:
    """Records with the unique key and one to six others, so that files end inside of some."""
    writer.put(
        [
            Message(
                topic="t",
                body=b"x" * (n % 7),
                keys=("all", *(f"{prefix}{n}-{k}" for k in range(n % 6))),
                queue_id=0,
            )
            for n in range(count)
        ]
    )
    assert writer.wait_acknowledged(writer.appended_offset, 10)


def open_indexer(directory: Path, **options: object) -> StoreIndexer:
    return StoreIndexer.open(
        directory, CONFIG, filesystem=OsFileSystem(), clock=SystemClock(), **options
    )


def run(directory: Path) -> None:
    with open_indexer(directory) as indexer:
        while indexer.step():
            pass


def paths_of(directory: Path) -> list[Path]:
    return [path for _, _, path in list_index_files(OsFileSystem(), directory / "index")]


def contents(directory: Path) -> list[bytes]:
    return [path.read_bytes() for path in paths_of(directory)]


def slot_of(directory: Path) -> IndexerSlot:
    page = (directory / "checkpoint").read_bytes()
    slots = [IndexerSlot.decode(page, position) for position in INDEXER_SLOT_POSITIONS]
    return max((slot for slot in slots if slot), key=lambda slot: slot.sequence)


def live_flushed_offset(directory: Path) -> int:
    page = (directory / "checkpoint").read_bytes()
    return int(WRITER_LIVE_LAYOUT.unpack_from(page, WRITER_LIVE_POSITION)[9])


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
        put(writer, 150, "a")
        keys = tuple(f"many-{n}" for n in range(260))
        writer.put([Message(topic="t", body=b"m", keys=keys, queue_id=0)])
        put(writer, 100, "b")
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        run(directory)
    return directory


def test_lost_files_are_made_again_to_the_byte(stopped: Path, tmp_path: Path) -> None:
    wanted = contents(stopped)
    assert len(border_records(wanted)) > 3
    for lost in range(1, len(wanted) + 1):
        left = tmp_path / f"lost-{lost}"
        shutil.copytree(stopped, left)
        for path in paths_of(left)[-lost:]:
            path.unlink()

        run(left)

        assert contents(left) == wanted, f"the last {lost} of {len(wanted)}"


def test_an_older_file_lost_with_the_newest_makes_all_new(stopped: Path) -> None:
    wanted = contents(stopped)
    paths = paths_of(stopped)
    paths[-1].unlink()
    paths[1].unlink()

    run(stopped)

    assert contents(stopped) == wanted


def test_files_that_a_broker_made_in_place_of_ours_are_taken_over(stopped: Path) -> None:
    wanted = contents(stopped)
    newest = paths_of(stopped)[-1]
    renamed = newest.with_name(f"{int(newest.name) + 5:017d}")
    newest.rename(renamed)

    with open_indexer(stopped, unclean=False) as indexer:
        while indexer.step():
            pass

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


@pytest.mark.parametrize("promised_too_much", [False, True])
def test_a_log_that_lost_its_end_loses_and_doubles_no_key_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, promised_too_much: bool
) -> None:
    directory, left = tmp_path / "store", tmp_path / "left"
    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put(writer, 120, "a")
        run(directory)
        flushed_offset = writer.appended_offset
    with StoreWriter.open(directory, ASYNC) as writer:
        put(writer, 150, "lost")
        assert live_flushed_offset(directory) == flushed_offset
        with open_indexer(directory, durable_interval_ms=0) as indexer:
            if promised_too_much:  # as an indexer of another version may have
                promise = StoreIndexer._promise
                monkeypatch.setattr(
                    StoreIndexer, "_promise", lambda self, **_: promise(self, anyway=True)
                )
            while indexer.step():
                pass
            assert indexer.indexed_offset == writer.appended_offset
            assert (slot_of(directory).indexed_offset > flushed_offset) == promised_too_much
            cut_power(directory, left, flushed_offset)
    monkeypatch.undo()
    assert len(paths_of(left)) > 5

    with StoreWriter.open(left, CONFIG) as writer:
        assert writer.appended_offset == flushed_offset
        put(writer, 200, "new")
        run(left)
        wanted = made_in_one_go(left, tmp_path / "one-go")

    assert contents(left) == wanted


def test_the_promise_follows_when_the_log_is_flushed(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with StoreWriter.open(directory, ASYNC) as writer:
        writer.create_topic("t", 1)
        put(writer, 150, "a")
        indexer = open_indexer(directory, durable_interval_ms=0)
        while indexer.step():
            pass
        assert indexer.durable_offset == 0
        indexed_offset = writer.appended_offset
    indexer.step()

    assert indexer.durable_offset == slot_of(directory).indexed_offset == indexed_offset
    files = [IndexHeader.decode(data) for data in contents(directory)]
    fields = BrokerFields.decode((directory / "checkpoint").read_bytes()[:40])
    assert fields.index_timestamp_ms == files[-2].end_timestamp_ms
    indexer.close()
    assert slot_of(directory).clean


def test_a_full_file_is_synced_when_its_successor_finds_the_disk_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    refused, synced = set(), []
    allocate, sync = OsFile.allocate, OsFile.sync

    def allocate_or_fail(self: OsFile, position: int, size: int) -> None:
        if self.path.parent.name == "index" and position and self.path not in refused:
            refused.add(self.path)
            raise StoreFull("no space left")
        allocate(self, position, size)

    def noted_sync(self: OsFile) -> None:
        synced.append(self.path)
        sync(self)

    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put(writer, 150, "a")
        monkeypatch.setattr(OsFile, "allocate", allocate_or_fail)
        monkeypatch.setattr(OsFile, "sync", noted_sync)
        indexer = open_indexer(directory)
        moved = True
        while moved:
            try:
                moved = indexer.step()
            except StoreFull:
                continue
        indexer.close()
        monkeypatch.undo()
        wanted = made_in_one_go(directory, tmp_path / "one-go")

    assert contents(directory) == wanted
    assert len(refused) == len(wanted) > 3
    assert set(paths_of(directory)) <= set(synced)


class Disk:
    """What a power cut leaves of index and checkpoint: of each sector, what was synced or newer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.synced: dict[Path, bytes] = {}
        self.names: set[Path] = set()

    def note(self, path: Path) -> None:
        self.synced[path] = path.read_bytes()

    def note_names(self) -> None:
        self.names = set(paths_of(self.directory))

    def cut(self, target: Path, rng: random.Random) -> None:
        shutil.copytree(self.directory, target, ignore=shutil.ignore_patterns("index", "commitlog"))
        (target / "commitlog").symlink_to(self.directory / "commitlog")
        (target / "index").mkdir()
        for path in {*self.names, *paths_of(self.directory)}:
            if path in self.names or rng.random() < 0.5:
                data = self._mixed(path, rng) if path.exists() else self.synced[path]
                (target / "index" / path.name).write_bytes(data)
        checkpoint = self.directory / "checkpoint"
        (target / "checkpoint").write_bytes(self._mixed(checkpoint, rng))

    def _mixed(self, path: Path, rng: random.Random) -> bytes:
        new = path.read_bytes()
        old = self.synced.get(path, b"").ljust(len(new), b"\0")
        share = rng.choice((0.0, 0.5, 1.0))
        return b"".join(
            (new if rng.random() < share else old)[at : at + SECTOR]
            for at in range(0, len(new), SECTOR)
        )


def test_a_power_cut_at_any_step_of_the_indexer_costs_and_doubles_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "store"
    rng = random.Random(5)
    left: list[tuple[str, Path]] = []
    disk = Disk(directory)
    synced = OsFileSystem.sync_directory
    watched = {name: getattr(OsFile, name) for name in ("give_name", "allocate", "sync")}

    def cut(label: str) -> None:
        target = tmp_path / f"cut-{len(left)}"
        disk.cut(target, rng)
        left.append((f"{len(left)}: {label}", target))

    def watch(name: str) -> None:
        def wrapped(self: OsFile, *arguments: object) -> None:
            mine = self.path.parent.name == "index" or self.path.name == "checkpoint"
            if mine:
                cut(f"before {name} of {self.path.name}")
            watched[name](self, *arguments)
            if mine:
                if name == "sync":
                    disk.note(self.path)
                cut(f"after {name} of {self.path.name}")

        monkeypatch.setattr(OsFile, name, wrapped)

    def sync_directory(self: OsFileSystem, path: Path) -> None:
        synced(self, path)
        if path.name == "index":
            disk.note_names()
            cut("names synced")

    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        put(writer, 60, "a")
        (directory / "index").mkdir(exist_ok=True)
        disk.note(directory / "checkpoint")
    indexer = open_indexer(directory, durable_interval_ms=0)
    for name in watched:
        watch(name)
    monkeypatch.setattr(OsFileSystem, "sync_directory", sync_directory)
    while indexer.step():
        pass
    with StoreWriter.open(directory, CONFIG) as writer:
        put(writer, 60, "b")
    while indexer.step():
        pass
    indexer.close()
    monkeypatch.undo()
    assert len(left) > 60
    wanted = made_in_one_go(directory, tmp_path / "one-go")
    assert contents(directory) == wanted and len(border_records(wanted)) > 1

    page = (directory / "checkpoint").read_bytes()
    for label, target in left:
        with (target / "checkpoint").open("r+b") as file:  # the writer is there again
            file.seek(WRITER_LIVE_POSITION)
            file.write(page[WRITER_LIVE_POSITION:INDEXER_LIVE_POSITION])
        run(target)

        assert contents(target) == wanted, label
