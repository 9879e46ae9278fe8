"""kill -9 of the indexer at every step that it takes: afterwards every key is found, and once."""

from __future__ import annotations

import itertools
import shutil
import threading
from pathlib import Path

import pytest
from engine_store import small_config

from storage.clock import SystemClock
from storage.files.filesystem import OsFile, OsFileSystem
from storage.format.checkpoint import INDEXER_SLOT_POSITIONS
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.view.index.index_file import IndexShape, list_index_files
from storage.view.index.reader import IndexReader
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=20, index_entry_count=120)
SHAPE = IndexShape(20, 120)
RECORDS = 200
STEPS = {"give_name": "named", "allocate": "allocated", "sync": "synced"}


def open_indexer(directory: Path) -> StoreIndexer:
    return StoreIndexer.open(
        directory,
        CONFIG,
        filesystem=OsFileSystem(),
        clock=SystemClock(),
        durable_interval_ms=0,
    )


def run(directory: Path) -> None:
    with open_indexer(directory) as indexer:
        while indexer.step():
            pass


def contents(directory: Path) -> list[bytes]:
    return [
        path.read_bytes() for _, _, path in list_index_files(OsFileSystem(), directory / "index")
    ]


def headers(directory: Path) -> list[bytes]:
    return [data[:HEADER_SIZE] for data in contents(directory)]


def found(directory: Path) -> list[int]:
    """Commit offsets under the key that all records have, newest first."""
    reader = IndexReader(OsFileSystem(), directory / "index", SHAPE)
    offsets, following, _ = reader.find("t", "all", count_max=9_999, begin_ms=0, end_ms=1 << 60)
    reader.close()
    assert following is None
    return offsets


def copy_of(directory: Path, target: Path) -> Path:
    target.mkdir()
    (target / "commitlog").symlink_to(directory / "commitlog")
    shutil.copytree(directory / "index", target / "index")
    shutil.copytree(directory / "config", target / "config")
    shutil.copy(directory / "checkpoint", target / "checkpoint")
    return target


@pytest.fixture
def store(tmp_path: Path) -> tuple[Path, list[int]]:
    """A store that is not indexed yet, and where its records are."""
    directory = tmp_path / "store"
    offsets = []
    with StoreWriter.open(directory, CONFIG) as writer:
        writer.create_topic("t", 1)
        for n in range(RECORDS):
            keys = ("all", f"k{n}")
            [result] = writer.put([Message(topic="t", body=b"x", keys=keys, queue_id=0)])
            offsets.append(result.commit_offset)
    (directory / "index").mkdir(exist_ok=True)
    return directory, offsets


@pytest.fixture
def killed(
    store: tuple[Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, Path]]:
    """What kills leave at each step of the files' making, allocating and syncing."""
    directory, _ = store
    left: list[tuple[str, Path]] = []

    def stop_at(name: str, patches: pytest.MonkeyPatch) -> None:
        original = getattr(OsFile, name)

        def wrapped(self: OsFile, *arguments: object) -> None:
            original(self, *arguments)
            if threading.current_thread() is threading.main_thread():
                label = f"{len(left)}: {self.path.name} {STEPS[name]}"
                left.append((label, copy_of(directory, tmp_path / f"killed-{len(left)}")))

        patches.setattr(OsFile, name, wrapped)

    with monkeypatch.context() as patches:
        for name in STEPS:
            stop_at(name, patches)
        run(directory)
    assert len(left) > 20
    return left


def test_a_kill_at_any_step_costs_no_key_and_finds_none_twice(store, killed):
    directory, offsets = store
    wanted = found(directory)
    assert wanted == offsets[::-1]

    for label, left in killed:
        run(left)

        assert found(left) == wanted, label
        assert contents(left) == contents(directory), label


def test_without_a_slot_the_last_record_may_be_found_twice_and_no_other(store, killed):
    _, offsets = store

    for label, left in killed:
        with (left / "checkpoint").open("r+b") as page:
            for position in INDEXER_SLOT_POSITIONS:
                page.seek(position)
                page.write(bytes(512))
        run(left)

        again = found(left)
        assert sorted(set(again)) == offsets, label
        assert len(again) <= len(offsets) + 1, label


def test_every_file_but_the_first_is_seeded_from_the_moment_it_has_a_name(store, killed):
    seen = set()
    for label, left in killed:
        files = [IndexHeader.decode(header) for header in headers(left)]
        for before, after in itertools.pairwise(files):
            assert after.end_commit_offset >= before.end_commit_offset > 0, label
            seen.add(after.next_entry)
    assert 1 in seen  # a kill did meet a file that nothing had been put into
