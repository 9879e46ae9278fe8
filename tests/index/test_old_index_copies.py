"""Old copies of an index file, of its checksums, or of both, from any moment: keys are found or named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engine_store import small_config

from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.format.record import decode_record
from storage.index import builder as index_builder
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.reader import StoreReader
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=300, index_entry_count=100, scrub_bytes_per_s=1 << 40)
ROUNDS = 7
KEYS = [f"key-{number}" for number in range(20 * ROUNDS)]
REPLACED = {
    "checksums": ("index-checksums",),
    "file": ("index",),
    "both": ("index", "index-checksums"),
}  # fmt: skip
STEPS_OF_A_SCRUB = 300
Files = dict[str, bytes]


def read(store: Path) -> Files:
    return {
        f"{directory}/{path.name}": path.read_bytes()
        for directory in ("index", "index-checksums")
        for path in (store / directory).iterdir()
        if path.is_file()
    }


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Files]]:
    """A stopped store, and the files of its index as they were while it ran, and after each stop."""
    store = tmp_path_factory.mktemp("whole") / "store"
    copies = []
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
    for number in range(ROUNDS):
        with StoreWriter.open(store, CONFIG) as writer:
            with open_indexer(store) as indexer:
                keys = KEYS[20 * number :][:20]
                for some in (keys[:7], keys[7:]):
                    writer.put(
                        [Message(topic="t", body=b"x", queue_id=0, keys=(key,)) for key in some]
                    )
                    assert writer.wait_acknowledged(writer.appended_offset, 10)
                    work(indexer)
                    copies.append(read(store))
            copies.append(read(store))
    return store, copies


def open_indexer(store: Path) -> StoreIndexer:
    return StoreIndexer.open(store, CONFIG, filesystem=OsFileSystem(), clock=SystemClock())


def work(indexer: StoreIndexer) -> None:
    while indexer.step():
        pass


def lost(store: Path) -> tuple[set[str], set[str]]:
    """Return the keys that are not found in a range that is named, and those in none."""
    named, silent = set(), set()
    with StoreReader.open(store) as reader:
        offset = 0
        for number, key in enumerate(KEYS):
            (part,) = reader.pull("t", 0, queue_offset=number, max_messages=1).slices
            offset = decode_record(part, 0).commit_offset
            found = reader.query_by_key("t", key)
            if found.record_count != 1:
                ranges = (
                    (each.begin_commit_offset, each.end_commit_offset) for each in found.uncovered
                )
                is_named = any(begin <= offset < end for begin, end in ranges)
                (named if is_named else silent).add(key)
    return named, silent


def old_versions(now: Files, copies: list[Files], paths: list[str]) -> list[Files]:
    """Return what these files were at earlier moments, each once."""
    found: list[Files] = []
    for copy in copies:
        old = {path: copy[path] for path in paths if path in copy}
        is_old = len(old) == len(paths) and all(now[path] != data for path, data in old.items())
        if is_old and old not in found:
            found.append(old)
    return found


@pytest.mark.parametrize("replaced", REPLACED)
def test_an_old_copy_costs_no_key_in_silence(
    history: tuple[Path, list[Files]],
    tmp_path: Path,
    replaced: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a file and its checksums are of one old moment, keys are found from the next start on."""
    monkeypatch.setattr(index_builder, "LOOK_S", 0.0)
    whole, copies = history
    names = [path.name for path in sorted((whole / "index").iterdir())]
    assert len(names) == 3
    for name in names:
        changes = old_versions(
            read(whole), copies, [f"{each}/{name}" for each in REPLACED[replaced]]
        )
        assert len(changes) > 1
        for number, change in enumerate(changes):
            store = shutil.copytree(whole, tmp_path / f"{name}-{number}")
            for path, data in change.items():
                (store / path).write_bytes(data)
            if replaced != "both":
                assert lost(store)[1] == set(), (name, number)
            with StoreWriter.open(store, CONFIG), open_indexer(store) as indexer:
                for _ in range(STEPS_OF_A_SCRUB):
                    indexer.step()
                assert lost(store) == (set(), set()), (name, number)
            shutil.rmtree(store)
