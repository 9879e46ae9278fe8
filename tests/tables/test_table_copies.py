"""Three files of one table: a flipped bit, a broker's rewrite, a stop at any step, and which copy counts."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from flips import flipped
from steps_to_try import steps_to_try

from storage.errors import StoreFull
from storage.files.filesystem import OsFileSystem
from storage.format.config_json import decode_config, encode_config
from storage.tables.table_copies import TableCopies, read_copies
from storage.testing import SimulatedDisk, every_stop

FILESYSTEM = OsFileSystem()
NAME = "topics.json"


def version(number: int) -> bytes:
    return encode_config(
        {"dataVersion": {"counter": number}, "table": {"orders": number, "bills": [number, 7]}}
    )


def is_readable(data: bytes) -> bool:
    try:
        return isinstance(decode_config(data), dict)
    except ValueError:
        return False


def counting(directory: Path) -> tuple[bytes, str]:
    chosen = read_copies(FILESYSTEM, directory / NAME, is_readable)
    return chosen.data, chosen.problem


def written(directory: Path, *numbers: int) -> Path:
    for number in numbers:
        TableCopies(FILESYSTEM, directory / NAME).replace(version(number))
    return directory / NAME


def replace_as_a_broker(path: Path, data: bytes) -> None:
    path.replace(path.with_name(NAME + ".bak"))
    path.write_bytes(data)


def some_flipped(data: bytes, start: int = 0) -> Iterator[bytes]:
    return flipped(data, steps_to_try(range(8 * len(data)), 15, start=start))


@pytest.mark.parametrize("writes", [1, 2, 3])
@pytest.mark.parametrize("ending", ["", ".bak", ".checked"])
def test_no_flipped_bit_changes_what_counts(tmp_path: Path, ending: str, writes: int) -> None:
    path = written(tmp_path, *range(1, writes + 1)).with_name(NAME + ending)
    whole = path.read_bytes() if path.exists() else b""
    for data in some_flipped(whole, start=writes):
        path.write_bytes(data)
        found, problem = counting(tmp_path)
        assert found == version(writes)
        assert bool(problem) == (ending != ".bak")


@pytest.mark.parametrize("ending", ["", ".bak", ".checked"])
@pytest.mark.parametrize("broken", [None, b"", b"\0" * 100, version(2)[:40], version(1)])
def test_no_lost_or_old_file_changes_what_counts(
    tmp_path: Path, ending: str, broken: bytes | None
) -> None:
    path = written(tmp_path, 1, 2).with_name(NAME + ending)
    path.unlink() if broken is None else path.write_bytes(broken)
    assert counting(tmp_path)[0] == version(2)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_what_a_broker_has_written_since_counts(tmp_path: Path, times: int) -> None:
    path = written(tmp_path, 1, 2)
    for number in range(times):
        replace_as_a_broker(path, version(10 + number))
    assert counting(tmp_path) == (version(9 + times), "")


def test_where_a_broker_died_between_two_names_its_last_version_counts(tmp_path: Path) -> None:
    path = written(tmp_path, 1, 2)
    path.replace(path.with_name(NAME + ".bak"))
    assert counting(tmp_path)[0] == version(2)
    path.write_bytes(version(3))
    path.replace(path.with_name(NAME + ".bak"))
    assert counting(tmp_path)[0] == version(3)


def test_a_table_of_a_broker_is_guarded_from_the_first_start_on(tmp_path: Path) -> None:
    for number, backup in enumerate((None, version(4), version(5))):
        directory = tmp_path / str(number)
        directory.mkdir()
        path = directory / NAME
        path.write_bytes(version(5))
        if backup is not None:
            path.with_name(NAME + ".bak").write_bytes(backup)
        assert TableCopies(FILESYSTEM, path).settle(is_readable) == ""
        for data in some_flipped(version(5), start=number):
            path.write_bytes(data)
            assert counting(directory)[0] == version(5)
        path.write_bytes(version(5))
        replace_as_a_broker(path, version(6))
        assert counting(directory) == (version(6), "")


def test_a_start_makes_a_damaged_table_whole_and_keeps_what_it_replaced(tmp_path: Path) -> None:
    path = written(tmp_path, 1, 2)
    damaged = version(2).replace(b"orders", b"nrders")
    path.write_bytes(damaged)
    copies = TableCopies(FILESYSTEM, path)
    assert copies.settle(is_readable) == "is damaged; its checked copy is used"
    assert path.read_bytes() == version(2)
    assert path.with_name(NAME + ".damaged").read_bytes() == damaged
    assert path.with_name(NAME + ".bak").read_bytes() == version(1)
    assert copies.settle(is_readable) == ""
    for data in some_flipped(version(2)):
        path.write_bytes(data)
        assert counting(tmp_path)[0] == version(2)


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    copies = TableCopies(disk, disk.root / NAME)
    copies.replace(version(1))
    copies.replace(version(2))
    before = {path.name: path.read_bytes() for path in disk.root.iterdir()}
    for at in (NAME + ".tmp", NAME + ".checked.tmp"):
        disk.fault, disk.faults_left, disk.fault_at = (28, 0), 1, at
        with pytest.raises(StoreFull):
            copies.replace(version(3))
        assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == before


@pytest.mark.parametrize("kills", [True, False])
def test_a_write_stopped_at_any_step_leaves_the_version_before_or_the_new_one(
    tmp_path: Path, kills: bool
) -> None:
    dice = random.Random(1)
    for seed in steps_to_try(range(1 if kills else 6), 5):
        acknowledged: list[int] = []

        def work(disk: SimulatedDisk, acknowledged: list[int] = acknowledged) -> None:
            acknowledged.clear()
            for number in range(1, 5):
                TableCopies(disk, disk.root / NAME).replace(version(number))
                acknowledged.append(number)

        for stop in every_stop(tmp_path / f"{seed}", work, kills=kills, seed=seed):
            last = len(acknowledged)
            path = stop.disk.root / NAME
            found, _ = counting(stop.disk.root)
            assert found in ([b""] if not last else []) + [version(last), version(last + 1)]
            if not found:
                continue
            # A start makes all of it right, again whatever bit flips then.
            TableCopies(stop.disk, path).settle(is_readable)
            assert path.read_bytes() == found
            at = dice.randrange(8 * len(found))
            for data in flipped(found, range(at, at + 1)):
                path.write_bytes(data)
                assert counting(stop.disk.root)[0] == found


@pytest.mark.parametrize("damage", [b"{", b"", version(2).replace(b"orders", b"nrders")])
def test_repair_stopped_at_any_step_is_done_by_the_next_start(
    tmp_path: Path, damage: bytes
) -> None:
    def work(disk: SimulatedDisk) -> None:
        path = disk.root / NAME
        if not path.exists():
            written(disk.root, 1, 2)
            path.write_bytes(damage)
            for each in disk.root.iterdir():
                disk.trust(each)
        TableCopies(disk, path).settle(is_readable)

    for stop in every_stop(tmp_path / "machine", work):
        assert counting(stop.disk.root)[0] == version(2)
        work(stop.disk)
        assert (stop.disk.root / NAME).read_bytes() == version(2)
        assert counting(stop.disk.root) == (version(2), "")


def test_the_same_table_is_not_written_twice(tmp_path: Path) -> None:
    path = written(tmp_path, 1, 2, 2)
    assert path.with_name(NAME + ".bak").read_bytes() == version(1)
    path.with_name(NAME + ".checked").unlink()
    written(tmp_path, 2)
    path.write_bytes(version(2).replace(b"orders", b"nrders"))
    assert counting(tmp_path)[0] == version(2)
