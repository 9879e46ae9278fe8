"""A table and its ``.bak``: a flipped bit, a broker's rewrite, a stop at any step, and which of them counts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from flips import flipped
from steps_to_try import steps_to_try

from storage.errors import StoreFull
from storage.files.filesystem import FileSystem
from storage.format.config_json import encode_config
from storage.tables.table_files import read_files, replace_table, settle_table
from storage.testing import SimulatedDisk, every_stop

FILESYSTEM = FileSystem()
NAME = "topics.json"


def version(number: int) -> bytes:
    return encode_config(
        {"dataVersion": {"counter": number}, "table": {"orders": number, "bills": [number, 7]}}
    )


def counting(directory: Path) -> tuple[bytes, str]:
    read = read_files(FILESYSTEM, directory / NAME, dict)
    return read.data, read.problem


def written(directory: Path, *numbers: int) -> Path:
    for number in numbers:
        replace_table(FILESYSTEM, directory / NAME, version(number))
    return directory / NAME


def replace_as_a_broker(path: Path, data: bytes) -> None:
    path.replace(path.with_name(NAME + ".bak"))
    path.write_bytes(data)


def some_flipped(data: bytes) -> Iterator[bytes]:
    return flipped(data, steps_to_try(range(8 * len(data)), 15))


def test_a_flipped_bit_costs_the_last_write_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, 1, 2, 3)
    for data in some_flipped(version(3)):
        path.write_bytes(data)
        assert counting(tmp_path) == (version(2), "is damaged; its .bak is used")
    settle_table(FILESYSTEM, path, dict)
    assert "is damaged; its .bak is used" in caplog.text
    assert (path.read_bytes(), counting(tmp_path)) == (version(2), (version(2), ""))
    replace_as_a_broker(path, version(4))
    assert counting(tmp_path) == (version(4), "")


@pytest.mark.parametrize("ending", [".bak", ".checksum"])
def test_a_flipped_bit_beside_the_table_costs_nothing(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, 1, 2).with_name(NAME + ending)
    for data in some_flipped(path.read_bytes()):
        path.write_bytes(data)
        assert counting(tmp_path) == (version(2), "")
    path.unlink()
    assert counting(tmp_path) == (version(2), "")


@pytest.mark.parametrize("broken", [None, b"", b"\0" * 100, version(2)[:40]])
@pytest.mark.parametrize("has_checksum", [True, False])
def test_of_a_lost_table_the_version_before_counts(
    tmp_path: Path, broken: bytes | None, has_checksum: bool
) -> None:
    path = written(tmp_path, 1, 2)
    path.unlink() if broken is None else path.write_bytes(broken)
    if not has_checksum:
        path.with_name(NAME + ".checksum").unlink()
    assert counting(tmp_path)[0] == version(1)
    path.with_name(NAME + ".bak").unlink()
    assert counting(tmp_path)[0] == b""


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


def test_a_full_disk_leaves_all_as_it_was(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    for number in (1, 2):
        replace_table(disk, disk.root / NAME, version(number))
    before = {path.name: path.read_bytes() for path in disk.root.iterdir()}
    for at in (NAME + ".tmp", NAME + ".checksum.tmp"):
        disk.fault, disk.faults_left, disk.fault_at = (28, 0), 1, at
        with pytest.raises(StoreFull):
            replace_table(disk, disk.root / NAME, version(3))
        assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == before


@pytest.mark.parametrize("kills", [True, False])
def test_a_write_stopped_at_any_step_leaves_the_version_before_or_the_new_one(
    tmp_path: Path, kills: bool
) -> None:
    for seed in steps_to_try(range(1 if kills else 6), 5):
        acknowledged: list[int] = []

        def work(disk: SimulatedDisk, acknowledged: list[int] = acknowledged) -> None:
            acknowledged.clear()
            for number in range(1, 5):
                replace_table(disk, disk.root / NAME, version(number))
                acknowledged.append(number)

        for stop in every_stop(tmp_path / f"{seed}", work, kills=kills, seed=seed):
            last = len(acknowledged)
            found, problem = counting(stop.disk.root)
            assert found in ([b""] if not last else []) + [version(last), version(last + 1)]
            assert not problem


def test_the_same_table_is_not_written_twice(tmp_path: Path) -> None:
    path = written(tmp_path, 1, 2, 2)
    assert path.with_name(NAME + ".bak").read_bytes() == version(1)
