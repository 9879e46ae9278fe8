"""Damaged and missing index files: the scrub finds them, queries name their range, the indexer rebuilds them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import flips
import pytest
from engine_store import records_in, small_config
from flips import cut, overwrite, wrong
from index_support import contents, open_indexer, paths_of, put_keys, work
from steps_to_try import cases_to_try, steps_to_try

from storage.format.index import HEADER_SIZE, SLOT_SIZE, entry_position
from storage.index import builder as index_builder
from storage.offline.repair import repair
from storage.reader import StoreReader
from storage.writer import StoreWriter

SLOTS, ENTRIES = 300, 200
CONFIG = small_config(index_slot_count=SLOTS, index_entry_count=ENTRIES, scrub_bytes_per_s=1 << 40)
COUNT = 250  # keys, so that with the unique ones there are three files: two are full
KEYS = [f"key-{n}" for n in range(COUNT)]
Change = Callable[[list[Path]], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped store."""
    store = tmp_path_factory.mktemp("whole") / "store"
    with StoreWriter.open(store, CONFIG) as writer:
        writer.create_topic("t", 1)
        put_keys(writer, [(key,) for key in KEYS])
        with open_indexer(store, CONFIG) as indexer:
            work(indexer)
    assert len(paths_of(store)) == 3
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


def commit_offsets(reader: StoreReader) -> list[int]:
    pulled = reader.pull("t", 0, queue_offset=0, max_messages=COUNT)
    return [each.commit_offset for each in records_in(pulled.slices)]


def zero(path: Path, position: int, length: int) -> None:
    overwrite(path, position, bytes(length))


def flip(path: Path, bit: int) -> None:
    flips.flip(path, bit // 8, 1 << bit % 8)


def swap(first: Path, second: Path) -> None:
    data = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(data)


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
    "a bit of a slot": lambda files: flip(files[1], 8 * (HEADER_SIZE + SLOT_SIZE * 9) + 30),
    "a bit of an entry's hash": lambda files: flip(files[1], 8 * ENTRY_7 + 3),
    "a bit of an entry's offset": lambda files: flip(files[1], 8 * (ENTRY_7 + 11)),
    "a bit of an entry's link": lambda files: flip(files[1], 8 * (ENTRY_7 + 19)),
    "a bit of an entry of the newest": lambda files: flip(files[-1], 8 * ENTRY_7 + 3),
    "a file that is cut off": lambda files: cut(files[1], entry_position(SLOTS, 100)),
    "the newest file cut off": lambda files: cut(files[-1], entry_position(SLOTS, 100)),
    "two files swapped": lambda files: swap(files[0], files[1]),
    "the newest swapped with the one before": lambda files: swap(files[-1], files[-2]),
}


@pytest.mark.parametrize("damage", steps_to_try(list(DAMAGES), 2))
def test_what_is_damaged_is_rebuilt(store: Path, damage: str) -> None:
    """What a query sees before: it names a file that is cut off, and may miss keys of one that is damaged."""
    wanted, files = contents(store), paths_of(store)
    DAMAGES[damage](files)
    named, silent = missing(store)
    if "cut off" in damage:
        assert named and silent == set()
    assert scrub(store) == ("newest" not in damage) + (damage == "two files swapped")
    assert contents(store) == wanted
    assert paths_of(store) == files or "newest" in damage
    assert missing(store) == (set(), set())


def test_a_whole_index_is_left_as_it_is(store: Path) -> None:
    inodes = [path.stat().st_ino for path in paths_of(store)]
    assert missing(store) == (set(), set())
    assert scrub(store) == 0
    assert [path.stat().st_ino for path in paths_of(store)] == inodes


def scrub(store: Path) -> int:
    """Have every file checked; return how many older ones were found to be damaged or missing."""
    with StoreWriter.open(store, CONFIG), open_indexer(store, CONFIG) as indexer:
        indexer.check_all()
        for _ in range(200):
            indexer.step()
        assert indexer._builder.is_repaired
        assert missing(store) == (set(), set())
        return indexer.damaged_count


def test_a_query_names_the_range_of_a_damaged_file_while_it_is_rebuilt(store: Path) -> None:
    """And answers from the others."""
    files = paths_of(store)
    zero(files[1], HEADER_SIZE, 4 * SLOTS)
    with (
        StoreWriter.open(store, CONFIG),
        open_indexer(store, CONFIG) as indexer,
        StoreReader.open(store) as reader,
    ):
        offsets = dict(zip(KEYS, commit_offsets(reader), strict=True))
        indexer.check_all()
        while not indexer.damaged_count:
            indexer.step()
        named, silent = missing(store)
        assert named and not silent
        first, last = reader.query_by_key("t", KEYS[0]), reader.query_by_key("t", KEYS[-1])
        assert first.record_count == last.record_count == 1
        [uncovered] = first.uncovered
        assert uncovered.file_name == files[1].name
        assert str(uncovered).startswith("keys between commit offsets")
        assert all(
            uncovered.begin_commit_offset <= offsets[key] < uncovered.end_commit_offset
            for key in named
        )
        work(indexer)
        assert not reader.query_by_key("t", KEYS[0]).uncovered


@pytest.mark.parametrize("table", ["removed", "damaged"])
@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_without_the_table_files_are_compared_with_the_log(
    store: Path, table: str, lost: int | None
) -> None:
    """So is damage from before there were checksums found, and a file that is missing as well."""
    wanted = contents(store)
    if table == "removed":
        (store / "index-checksums/table").unlink()
    else:
        flip(store / "index-checksums/table", 333)
    if lost is not None:
        paths_of(store)[lost].unlink()
    else:
        zero(paths_of(store)[1], entry_position(SLOTS, 20), 512)
    first = paths_of(store)[0].stat().st_ino
    scrub(store)
    assert contents(store) == wanted
    if lost is None:
        assert paths_of(store)[0].stat().st_ino == first  # the same is not replaced


@pytest.mark.parametrize("of_which", ["file", "table", "both"])
def test_old_copies_of_a_file_and_of_the_table_cost_no_key(
    store: Path, tmp_path: Path, of_which: str
) -> None:
    old = shutil.copytree(store, tmp_path / "old")
    newest = paths_of(old)[-1]
    with StoreWriter.open(store, CONFIG) as writer, open_indexer(store, CONFIG) as indexer:
        put_keys(writer, [("more", f"more-{n}") for n in range(300)])
        work(indexer)
    wanted = contents(store)
    if of_which != "table":
        shutil.copy(newest, store / "index" / newest.name)
    if of_which != "file":
        shutil.copy(old / "index-checksums/table", store / "index-checksums/table")
    scrub(store)
    assert contents(store) == wanted


@pytest.mark.parametrize("place", cases_to_try([0, 1, 2]))
@pytest.mark.parametrize("part", ["entry", "slot"])
def test_doctor_compares_a_file_without_a_checksum_with_the_log(
    store: Path, place: int, part: str
) -> None:
    wanted = contents(store)
    (store / "index-checksums/table").unlink()
    assert wrong(store) == []
    path = paths_of(store)[place]
    flip(
        path,
        8 * (entry_position(SLOTS, 20) if part == "entry" else (HEADER_SIZE + SLOT_SIZE * 9)) + 30,
    )
    [line] = wrong(store)
    assert (line["kind"], line["file"]) == ("index-entries", f"index/{path.name}")
    repair(store)
    assert contents(store) == wanted


@pytest.mark.parametrize("damage", steps_to_try(list(DAMAGES), 4))
def test_doctor_names_it_and_repair_repairs_it(store: Path, damage: str) -> None:
    wanted, files = contents(store), [f"index/{path.name}" for path in paths_of(store)]
    DAMAGES[damage](paths_of(store))
    found = wrong(store)
    assert {line["file"] for line in found} & set(files)
    repair(store)
    assert contents(store) == wanted
    assert missing(store) == (set(), set())
    assert wrong(store) == []
