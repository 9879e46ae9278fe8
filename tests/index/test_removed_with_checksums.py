"""Index files that are removed with their checksums while no indexer runs: queries name what is not covered."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from engine_store import record, small_config

from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.format.checkpoint import PAGE_SIZE
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.reader import StoreReader
from storage.view.index import gaps
from storage.view.index.index_file import list_index_files
from storage.view.index.key_query import KeyIndex
from storage.view.index.reader import IndexReader
from storage.view.index.watch import IndexState
from storage.view.log import walk
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=300, index_entry_count=100)
COUNT = 250
KEYS = [f"key-{n}" for n in range(COUNT)]
LIVE = slice(512, 1536)  # of the checkpoint: what a power cut makes void


def open_indexer(store: Path) -> StoreIndexer:
    return StoreIndexer.open(store, CONFIG, filesystem=OsFileSystem(), clock=SystemClock())


def work(indexer: StoreIndexer) -> None:
    while indexer.step():
        pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store of six index files: of each record a key, and its unique one."""
    store = tmp_path_factory.mktemp("whole") / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        for key in KEYS:
            writer.put([Message(topic="t", body=key.encode(), keys=(key,), queue_id=0)])
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        with open_indexer(store) as indexer:
            work(indexer)
    assert len(numbers(store)) == 6
    return store


@pytest.fixture(params=["same boot", "rebooted"])
def store(tmp_path: Path, whole: Path, request: pytest.FixtureRequest) -> Path:
    store = shutil.copytree(whole, tmp_path / "store")
    if request.param == "rebooted":
        page = bytearray((store / "checkpoint").read_bytes())
        page[LIVE] = bytes(1024)
        assert len(page) == PAGE_SIZE
        (store / "checkpoint").write_bytes(page)
    return store


def numbers(store: Path) -> list[int]:
    return [number for number, _, _ in list_index_files(OsFileSystem(), store / "index")]


def remove(store: Path, *places: int) -> None:
    found = numbers(store)
    for place in places:
        for directory in ("index", "index-checksums"):
            (store / directory / f"{found[place]:017d}").unlink()


def unfound(reader: StoreReader) -> tuple[set[str], set[str]]:
    """Return the keys that are not found: those in a range that is named, and those lost in silence."""
    places = reader.pull("t", 0, queue_offset=0, max_messages=COUNT, max_bytes=1 << 30)
    named, silent = set(), set()
    offset = 0
    for key, data in zip(KEYS, records(places.slices), strict=True):
        offset = int.from_bytes(data[28:36], "big")
        found = reader.query_by_key("t", key)
        if found.record_count:
            continue
        covers = any(
            each.begin_commit_offset <= offset < each.end_commit_offset for each in found.uncovered
        )
        (named if covers else silent).add(key)
    return named, silent


def records(slices: tuple[memoryview, ...]) -> list[bytes]:
    found = []
    for part in slices:
        position = 0
        while position < len(part):
            size = int.from_bytes(part[position : position + 4], "big")
            found.append(bytes(part[position : position + size]))
            position += size
    return found


REMOVALS = [(0,), (2,), (-1,), (2, 3), (0, 3, -1), (-2, -1), tuple(range(6))]


@pytest.mark.parametrize("places", REMOVALS)
def test_each_key_that_is_not_found_is_in_a_range_that_is_named(
    store: Path, places: tuple[int, ...]
) -> None:
    remove(store, *places)
    with StoreReader.open(store) as reader:
        named, silent = unfound(reader)
        assert silent == set()
        assert named
        if len(places) < 6:
            assert len(named) < COUNT
        uncovered = reader.query_by_key("t", min(named)).uncovered
        assert str(uncovered[0]).endswith(gaps.REASON)
    with StoreWriter.open(store, CONFIG), open_indexer(store) as indexer:
        work(indexer)
    with StoreReader.open(store) as reader:
        assert unfound(reader) == (set(), set())
        assert all(not reader.query_by_key("t", key).uncovered for key in KEYS)


def test_a_whole_index_covers_everything(store: Path) -> None:
    with StoreReader.open(store) as reader:
        assert all(not reader.query_by_key("t", key).uncovered for key in [*KEYS, "none"])


def test_a_record_that_is_indexed_during_the_query_before_is_not_named(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query sees the index of after what it shows of the log, and that of after a record that it does not show."""
    look = KeyIndex.look
    with (
        StoreWriter.open(store, CONFIG) as writer,
        open_indexer(store) as indexer,
        StoreReader.open(store) as reader,
    ):

        def look_later(index: KeyIndex) -> tuple[IndexReader, IndexState | None]:
            monkeypatch.setattr(KeyIndex, "look", look)
            writer.put([Message(topic="t", body=b"later", keys=("later",), queue_id=0)])
            assert writer.wait_acknowledged(writer.appended_offset, 10)
            work(indexer)
            return index.look()

        monkeypatch.setattr(KeyIndex, "look", look_later)
        assert not reader.query_by_key("t", "none").uncovered
        assert KeyIndex.look is look
        assert not reader.query_by_key("t", "none").uncovered
        assert reader.query_by_key("t", "later").record_count == 1


def test_pages_name_the_range_where_they_come_by(store: Path) -> None:
    remove(store, 2)
    with StoreReader.open(store) as reader:
        pages, token = 0, ""
        uncovered = []
        while True:
            answer = reader.query_by_key("t", "none", page_token=token)
            uncovered += answer.uncovered
            pages += 1
            token = answer.next_page_token
            if not token:
                break
        assert len(uncovered) == 1


def make_sparse(store: Path) -> None:
    """A file that is full of one key, much without any, and a second file."""
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        for keys, count in (("key", CONFIG.index_entry_count - 1), ("", 60), ("key", 9)):
            for _ in range(count):
                writer.append_batch(record(body=bytes(900), keys=keys))
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        with open_indexer(store) as indexer:
            work(indexer)
    assert len(numbers(store)) == 2


@pytest.mark.parametrize("look_bytes", [1, 5_000, 1 << 20])
def test_much_without_a_key_is_looked_through_in_many_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_bytes: int
) -> None:
    """A look costs little, and each goes on where the one before ended."""
    monkeypatch.setattr(gaps, "LOOK_BYTES", look_bytes)
    monkeypatch.setattr(walk, "RANGE_ROWS_MAX", 4)
    store = tmp_path / "store"
    make_sparse(store)

    def looks_until_named(most: int) -> int:
        with StoreReader.open(store) as reader:
            for look in range(most):
                if reader.query_by_key("t", "none").uncovered:
                    return look
        return most

    assert looks_until_named(80) == 80
    remove(store, -1)
    looks = looks_until_named(80)
    assert looks < 80
    assert (looks == 0) == (look_bytes > 100_000)


@pytest.mark.parametrize("look_bytes", [5_000, 1 << 20])
def test_a_lost_first_file_is_named_though_much_before_its_keys_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look_bytes: int
) -> None:
    """Without any file each query lists anew, and yet goes on where the one before ended."""
    monkeypatch.setattr(gaps, "LOOK_BYTES", look_bytes)
    monkeypatch.setattr(walk, "RANGE_ROWS_MAX", 4)
    store = tmp_path / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        for keys in [""] * 60 + ["key"]:
            writer.append_batch(record(body=bytes(900), keys=keys))
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        with open_indexer(store) as indexer:
            work(indexer)
    remove(store, 0)
    with StoreReader.open(store) as reader:
        looks = [bool(reader.query_by_key("t", "key").uncovered) for _ in range(40)]
    assert looks[-1]
    assert looks[0] == (look_bytes > 100_000)


def drop_slots(store: Path) -> None:
    """As where no indexer of ours ever ran."""
    page = bytearray((store / "checkpoint").read_bytes())
    page[1024:1536] = bytes(512)
    page[2560:3584] = bytes(1024)
    (store / "checkpoint").write_bytes(page)
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "index-checksums")


def brokers_run(store: Path) -> None:
    page = bytearray((store / "checkpoint").read_bytes())
    page[7] ^= 1
    (store / "checkpoint").write_bytes(page)
    remove(store, 2)


@pytest.mark.parametrize("change", [drop_slots, brokers_run])
def test_nothing_is_named_where_nobody_has_said_what_is_indexed(
    store: Path, change: Callable[[Path], None]
) -> None:
    change(store)
    with StoreReader.open(store) as reader:
        assert all(not reader.query_by_key("t", key).uncovered for key in KEYS)
