"""A broker's run on the directory: the indexer leaves its files alone until our writer has started again."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest
from engine_store import small_config
from index_support import index_files, offsets_found, open_indexer, put_keys, work

from storage.format.checkpoint import PAGE_SIZE
from storage.indexer import StoreIndexer
from storage.writer import StoreWriter

CONFIG = small_config(index_slot_count=20, index_entry_count=120)
BROKER_WROTE = ("commitlog", "consumequeue/t/0", "index")
OURS, BROKERS = 100, 100
KEYS = [("all", f"k{n}") for n in range(OURS + BROKERS + 10)]


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store after an orderly stop, and the same with more in log, queue and index."""
    root = tmp_path_factory.mktemp("stores")
    longer, stopped = root / "longer", root / "stopped"
    with StoreWriter.open(longer, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, KEYS[:OURS])
        with open_indexer(longer, CONFIG) as indexer:
            work(indexer)
    shutil.copytree(longer, stopped)
    with StoreWriter.open(longer, CONFIG) as writer, open_indexer(longer, CONFIG) as indexer:
        put_keys(writer, KEYS[OURS : OURS + BROKERS])
        work(indexer)
    before, after = index_files(stopped), index_files(longer)
    assert set(before) < set(after)
    assert any(before[name] != after[name] for name in before)
    return stopped, longer


class Directory:
    """The stopped store, and what a broker does in it."""

    def __init__(self, path: Path, longer: Path) -> None:
        self.path = path
        self._longer = longer

    def run_a_broker(self, *, field_is_raised: bool = True) -> None:
        """Leave more in log, queue and index, and the time of the last flush in the checkpoint."""
        for name in BROKER_WROTE:
            for source in (self._longer / name).iterdir():
                target = self.path / name / source.name
                target.touch()
                with target.open("r+b") as file:  # in place, for who has the file mapped
                    file.write(source.read_bytes())
        if not field_is_raised:
            (self.path / "abort").touch()  # a broker removes it when it stops in order
        else:
            with (self.path / "checkpoint").open("r+b") as page:
                page.write(struct.pack(">q", 1_900_000_000_000))

    @property
    def page(self) -> bytes:
        return (self.path / "checkpoint").read_bytes()[:PAGE_SIZE]


@pytest.fixture
def directory(tmp_path: Path, stores: tuple[Path, Path]) -> Directory:
    stopped, longer = stores
    shutil.copytree(stopped, tmp_path / "store")
    return Directory(tmp_path / "store", longer)


@pytest.fixture(params=["opened before", "opened after"])
def is_open_before(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "opened before")


def opened_around(
    directory: Directory, *, before: bool, field_is_raised: bool = True
) -> StoreIndexer:
    """Return an indexer that was opened, and worked, before or after the broker's run."""
    if before:
        indexer = open_indexer(directory.path, CONFIG)
        work(indexer)
        directory.run_a_broker(field_is_raised=field_is_raised)
        return indexer
    directory.run_a_broker(field_is_raised=field_is_raised)
    return open_indexer(directory.path, CONFIG)


def test_a_broker_s_index_is_left_alone_until_our_writer_has_started(
    directory: Directory, is_open_before: bool
) -> None:
    with opened_around(directory, before=is_open_before) as indexer:
        files, page = index_files(directory.path), directory.page
        assert indexer.confirm_offset == 0
        assert not indexer.step()
        indexer.sync()
    assert index_files(directory.path) == files
    assert directory.page == page


@pytest.mark.parametrize(
    "field_is_raised", [True, False], ids=["noticed", "killed before its flush"]
)
@pytest.mark.parametrize("looks_meanwhile", [True, False], ids=["looks", "sleeps"])
def test_the_keys_of_a_broker_s_messages_are_found_once_after_our_writer_has_started(
    directory: Directory, is_open_before: bool, looks_meanwhile: bool, field_is_raised: bool
) -> None:
    with opened_around(
        directory, before=is_open_before, field_is_raised=field_is_raised
    ) as indexer:
        if looks_meanwhile:
            indexer.step()
        with StoreWriter.open(directory.path, CONFIG) as writer:
            put_keys(writer, KEYS[OURS + BROKERS :])
            work(indexer)
            assert indexer.indexed_offset == indexer.confirm_offset == writer.appended_offset
            for key, count in (("all", len(KEYS)), ("k0", 1), (f"k{OURS}", 1), ("k205", 1)):
                assert len(offsets_found(directory.path, key, CONFIG)) == count, key
