"""Audits of index files: every flipped bit that a query or the log can show is named."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from engine_store import small_config
from golden import golden_copy
from local_spark import LocalSpark

from pipeline import audit
from pipeline.jobs.audit.job import AuditReport
from storage import Message
from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.format.index import ENTRY_SIZE, HEADER_SIZE, IndexHeader, entry_position, slot_position
from storage.indexer import StoreIndexer
from storage.view.store_view import StoreView
from storage.writer import StoreWriter

SLOTS, ENTRIES = 20, 100
KEYED = small_config(index_slot_count=SLOTS, index_entry_count=ENTRIES)

HEADER_FIELDS = {
    "begin timestamp": (0, 8),
    "end timestamp": (8, 8),
    "begin commit offset": (16, 8),
    "end commit offset": (24, 8),
    "used slots": (32, 4),
    "next entry": (36, 4),
}
ENTRY_FIELDS = {
    "key hash": (0, 4),
    "commit offset": (4, 8),
    "time difference": (12, 4),
    "previous entry": (16, 4),
}
FILES = {"first": 0, "middle": 1, "last": -1}


class SlowClock(SystemClock):
    """The time of day at the start, and what a test lets pass."""

    def __init__(self) -> None:
        self.passed_ms = 0
        self._began_ms = super().now_ms()

    def now_ms(self) -> int:
        return self._began_ms + self.passed_ms


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store with four index files, the last half full."""
    store = tmp_path_factory.mktemp("keyed") / "store"
    with StoreWriter.open(store, KEYED) as writer:
        writer.create_topic("t", 1)
        messages = [
            Message(topic="t", queue_id=0, body=b"x", keys=("all", f"k{n}")) for n in range(120)
        ]
        writer.put(messages)
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        indexer = StoreIndexer.open(store, KEYED, filesystem=OsFileSystem(), clock=SystemClock())
        with indexer:
            while indexer.step():
                pass
    return store


@pytest.fixture
def store(keyed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(keyed, tmp_path / "store"))


def index_of(store: Path) -> list[Path]:
    return sorted((store / "index").iterdir())


def audited(store: Path) -> AuditReport:
    return audit(LocalSpark(), store, piece_bytes=4_096)  # type: ignore[arg-type]


def flip(path: Path, position: int, bit: int) -> None:
    """Flip one bit; bit 0 is the lowest of the byte at ``position``."""
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


def bits_of(position: int, size: int) -> list[tuple[int, int]]:
    """Return places of the lowest bit of a big-endian field, of two between, and of its sign."""
    return [
        (position + size - 1, 0),
        (position + size - 2, 1),
        (position + size // 2 - 1, 3),
        (position, 7),
    ]


def assert_each_is_named(store: Path, path: Path, places: list[tuple[int, int]]) -> None:
    """Flip one bit after the other, each back again before the next."""
    for position, bit in places:
        flip(path, position, bit)
        findings = audited(store).findings
        flip(path, position, bit)
        assert any(finding["kind"] == "index" for finding in findings), (position, bit)
        assert {finding["kind"] for finding in findings} == {"index"}, findings
        # One bit is told in a few words, not by everything that is near it.
        assert len(findings) <= 6, findings


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_a_flipped_bit_in_an_index_header_is_named(store: Path, field: str, file: str) -> None:
    path = index_of(store)[FILES[file]]

    assert_each_is_named(store, path, bits_of(*HEADER_FIELDS[field]))


@pytest.mark.parametrize("entry", [1, 2, 37, -1])
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("field", ENTRY_FIELDS)
def test_a_flipped_bit_in_an_index_entry_is_named(
    store: Path, field: str, file: str, entry: int
) -> None:
    path = index_of(store)[FILES[file]]
    if entry < 0:
        entry = IndexHeader.decode(path.read_bytes()[:HEADER_SIZE]).next_entry - 1
    position, size = ENTRY_FIELDS[field]

    assert_each_is_named(store, path, bits_of(entry_position(SLOTS, entry) + position, size))


@pytest.mark.parametrize("file", FILES)
def test_a_flipped_bit_in_an_index_slot_is_named(store: Path, file: str) -> None:
    path = index_of(store)[FILES[file]]

    for slot in (0, 7, SLOTS - 1):
        assert_each_is_named(store, path, bits_of(slot_position(slot), 4))


def test_a_flipped_bit_where_nothing_is_written_needs_no_name(store: Path) -> None:
    """Entry 0 and the entries after the last are not read, so they change no answer."""
    assert audited(store).findings == ()
    path = index_of(store)[-1]
    header = IndexHeader.decode(path.read_bytes()[:HEADER_SIZE])
    assert header.next_entry < ENTRIES - 2

    for entry in (0, header.next_entry + 1, ENTRIES - 1):
        for position in range(0, ENTRY_SIZE, 3):
            place = entry_position(SLOTS, entry) + position
            flip(path, place, 5)
            assert audited(store).findings == ()
            flip(path, place, 5)


def test_a_flipped_bit_in_the_newest_entry_of_a_brokers_index_is_named(tmp_path: Path) -> None:
    """No checkpoint of a broker says how far its index goes; its last record counts all the same."""
    store = golden_copy("basic", tmp_path)
    path = index_of(store)[-1]
    slots = StoreView.open(store).index_files()[-1].slot_count
    last = IndexHeader.decode(path.read_bytes()[:HEADER_SIZE]).next_entry - 1

    for position, size in ENTRY_FIELDS.values():
        places = bits_of(entry_position(slots, last) + position, size)
        assert_each_is_named(store, path, places[-1:])
