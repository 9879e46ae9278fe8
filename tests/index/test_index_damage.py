"""Damaged index files: every key is found or its range is named, and the indexer makes them again."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_store import small_config

from storage.clock import SystemClock
from storage.files.filesystem import OsFileSystem
from storage.format.index import HEADER_SIZE, entry_position, slot_position
from storage.format.record import decode_record
from storage.index import builder as index_builder
from storage.index.checksum_file import ChecksumFile
from storage.indexer import StoreIndexer
from storage.message import Message
from storage.offline import doctor
from storage.offline.repair import repair
from storage.reader import StoreReader
from storage.view.index.checksums import IndexChecksums
from storage.view.index.index_file import IndexShape, list_index_files
from storage.writer import StoreWriter

SLOTS, ENTRIES = 300, 200
FLIPS = int(os.environ.get("FLIPS", "60"))
CONFIG = small_config(index_slot_count=SLOTS, index_entry_count=ENTRIES, scrub_bytes_per_s=1 << 40)
COUNT = 250  # keys, so that with the unique ones there are three files: two are full
KEYS = [f"key-{n}" for n in range(COUNT)]
Change = Callable[[list[Path]], None]


def index_files(store: Path) -> list[Path]:
    return [path for _, _, path in list_index_files(OsFileSystem(), store / "index")]


def contents(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in index_files(store)]


def open_indexer(store: Path) -> StoreIndexer:
    return StoreIndexer.open(store, CONFIG, filesystem=OsFileSystem(), clock=SystemClock())


def work(indexer: StoreIndexer) -> None:
    while indexer.step():
        pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store."""
    store = tmp_path_factory.mktemp("whole") / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        writer.put([Message(topic="t", body=b"x", keys=(key,), queue_id=0) for key in KEYS])
        assert writer.wait_acknowledged(writer.appended_offset, 10)
        with open_indexer(store) as indexer:
            work(indexer)
    assert len(index_files(store)) == 3
    return store


@pytest.fixture
def store(tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, for an indexer that looks at every step."""
    monkeypatch.setattr(index_builder, "LOOK_S", 0.0)
    return shutil.copytree(whole, tmp_path / "store")


def missing(store: Path) -> tuple[set[str], set[str]]:
    """Return the keys that are not found in a range that is named, and those that are lost in silence."""
    named, silent = set(), set()
    with StoreReader.open(store) as reader:
        for key, offset in zip(KEYS, commit_offsets(reader), strict=True):
            found = reader.query_by_key("t", key)
            if found.record_count == 1:
                continue
            covers = any(
                each.begin_commit_offset <= offset < each.end_commit_offset
                for each in found.uncovered
            )
            (named if covers else silent).add(key)
    return named, silent


def commit_offsets(reader: StoreReader) -> Iterator[int]:
    for part in reader.pull("t", 0, queue_offset=0, max_messages=COUNT).slices:
        position = 0
        while position < len(part):
            record = decode_record(part, position)
            yield record.commit_offset
            position += record.total_size


def zero(path: Path, position: int, length: int) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + length] = bytes(length)
    path.write_bytes(data)


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def swap(first: Path, second: Path) -> None:
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: entry_position(SLOTS, 100)])


ENTRY_7 = entry_position(SLOTS, 7)
DAMAGES: dict[str, Change] = {
    "512 zeroed bytes of entries": lambda files: zero(files[1], entry_position(SLOTS, 50), 512),
    "512 zeroed bytes of slots": lambda files: zero(files[1], HEADER_SIZE, 512),
    "512 zeroed bytes of entries of the newest": lambda files: zero(files[-1], ENTRY_7, 512),
    "512 zeroed bytes of slots of the newest": lambda files: zero(files[-1], HEADER_SIZE, 512),
    "a zeroed file": lambda files: zero(files[0], 0, files[0].stat().st_size),
    "a bit of the begin in the header": lambda files: flip(files[1], 8),
    "a bit of the end offset in the header": lambda files: flip(files[1], 8 * 31),
    "a bit of the count in the header": lambda files: flip(files[1], 8 * 39),
    "a bit of the count in the newest header": lambda files: flip(files[-1], 8 * 39 + 5),
    "a bit of the begin in the newest header": lambda files: flip(files[-1], 8 * 2),
    "a bit of a slot": lambda files: flip(files[1], 8 * slot_position(9) + 30),
    "a bit of an entry's hash": lambda files: flip(files[1], 8 * ENTRY_7 + 3),
    "a bit of an entry's offset": lambda files: flip(files[1], 8 * (ENTRY_7 + 11)),
    "a bit of an entry's link": lambda files: flip(files[1], 8 * (ENTRY_7 + 19)),
    "a bit of an entry of the newest": lambda files: flip(files[-1], 8 * ENTRY_7 + 3),
    "a file that is cut off": lambda files: truncate(files[1]),
    "the newest file cut off": lambda files: truncate(files[-1]),
    "a removed file": lambda files: files[1].unlink(),
    "the newest file removed": lambda files: files[-1].unlink(),
    "two files swapped": lambda files: swap(files[0], files[1]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_repaired(store: Path, damage: Change) -> None:
    wanted = contents(store)
    damage(index_files(store))
    _, silent = missing(store)
    assert silent == set()
    with StoreWriter.open(store, CONFIG) as writer, open_indexer(store) as indexer:
        work(indexer)
        _, silent = missing(store)  # which reports what the start has not seen
        assert silent == set()
        work(indexer)
        assert indexer.indexed_offset == writer.appended_offset
        assert missing(store) == (set(), set())
    assert contents(store) == wanted
    names = {path.name for path in (store / "index-checksums").iterdir() if path.is_file()}
    assert names == {path.name for path in index_files(store)}


def test_an_undamaged_index_answers_without_a_word(store: Path) -> None:
    assert missing(store) == (set(), set())


def test_no_flip_loses_a_key_in_silence(store: Path, whole: Path) -> None:
    rng = random.Random(10)
    files = index_files(store)
    bits = 8 * files[0].stat().st_size
    losses = 0
    for _ in range(FLIPS):
        path, bit = rng.choice(files), rng.randrange(bits)
        flip(path, bit)
        named, silent = missing(store)
        assert silent == set(), (path.name, bit)
        losses += bool(named)
        flip(path, bit)
    assert losses > FLIPS // 3


def scrub(store: Path) -> int:
    """Have every file checked; return how many were found to be damaged."""
    with StoreWriter.open(store, CONFIG), open_indexer(store) as indexer:
        for _ in range(100):
            indexer.step()
        return indexer.damaged_count


OF_OLDER_FILES = [name for name in DAMAGES if "newest" not in name and "file" not in name]


@pytest.mark.parametrize("damage", OF_OLDER_FILES)
def test_the_scrub_finds_what_nobody_reads(store: Path, damage: str) -> None:
    wanted, inodes = contents(store), [path.stat().st_ino for path in index_files(store)]
    DAMAGES[damage](index_files(store))
    age(store)
    assert scrub(store) == 1
    assert contents(store) == wanted
    now = [path.stat().st_ino for path in index_files(store)]
    assert [before == after for before, after in zip(inodes, now, strict=True)] == [
        True,
        False,
        True,
    ]
    assert scrub(store) == 0


def age(store: Path) -> None:
    """Have every file due."""
    for path in index_files(store):
        checksums = ChecksumFile.open(
            OsFileSystem(), store / "index-checksums" / path.name, IndexShape(SLOTS, ENTRIES)
        )
        assert checksums is not None
        checksums.note_checked(1)
        checksums.close()


def noted(store: Path) -> list[bool]:
    """Return of each file whether its entries are known to be those of the log."""
    found = []
    for path in index_files(store):
        checksums = IndexChecksums.find(
            OsFileSystem(), store / "index-checksums" / path.name, IndexShape(SLOTS, ENTRIES)
        )
        newest = checksums.newest() if checksums is not None else None
        found.append(newest is not None and newest.proven)
    return found


def test_an_index_without_checksums_is_compared_with_the_log(store: Path) -> None:
    """An older version's: the files stay, and are protected from then on."""
    wanted = contents(store)
    shutil.rmtree(store / "index-checksums")
    assert missing(store) == (set(), set())
    assert noted(store) == [False] * 3
    assert scrub(store) == 0
    assert noted(store) == [True] * 3
    assert contents(store) == wanted


@pytest.mark.parametrize("place", [0, 1, 2])
def test_damage_from_before_there_were_checksums_is_found_by_the_log(
    store: Path, place: int
) -> None:
    wanted = contents(store)
    shutil.rmtree(store / "index-checksums")
    zero(index_files(store)[place], entry_position(SLOTS, 20), 512)
    assert scrub(store) == 1
    assert contents(store) == wanted
    assert missing(store) == (set(), set())
    assert noted(store) == [True] * 3


def test_a_query_answers_from_the_other_files_while_one_is_made_again(store: Path) -> None:
    """It names the range of the one, and only of that."""
    files = index_files(store)
    zero(files[1], HEADER_SIZE, 4 * SLOTS)
    with StoreReader.open(store) as reader:
        offsets = dict(zip(KEYS, commit_offsets(reader), strict=True))
        first, last = reader.query_by_key("t", KEYS[0]), reader.query_by_key("t", KEYS[-1])
        assert first.record_count == last.record_count == 1
        [uncovered] = first.uncovered
        assert uncovered.file_name == files[1].name
        named, _ = missing(store)
        assert named and all(
            uncovered.begin_commit_offset <= offsets[key] < uncovered.end_commit_offset
            for key in named
        )
        assert str(uncovered).startswith("keys between commit offsets")


@pytest.mark.parametrize("damage", OF_OLDER_FILES)
def test_doctor_names_it_and_repair_repairs_it(store: Path, damage: str) -> None:
    wanted = contents(store)
    DAMAGES[damage](index_files(store))
    found = [line for line in doctor(store) if line["severity"] in ("warning", "damage")]
    assert f"index/{index_files(store)[1].name}" in [line["file"] for line in found]
    repair(store)
    assert contents(store) == wanted
    assert missing(store) == (set(), set())
    assert [line for line in doctor(store) if line["severity"] in ("warning", "damage")] == []


def test_doctor_says_nothing_of_a_whole_index(store: Path) -> None:
    assert [line for line in doctor(store) if line["severity"] in ("warning", "damage")] == []
