"""Directories that have one file each, looked at with few calls of the system."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.files.filesystem import OsFileSystem
from storage.files.only_files import OnlyFile
from storage.files.protocol import DirectoryEntry, FileSystem

LENGTH = 4096


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, files in {
        "none": {}, "one": {"f": b"abc"}, "two": {"f": b"a", "g": b"b"}, "empty": {"f": b""},
        "long": {"f": bytes(range(256)) * 40},
    }.items():  # fmt: skip
        (tmp_path / name).mkdir()
        for file, data in files.items():
            (tmp_path / name / file).write_bytes(data)
    (tmp_path / "deep" / "inner").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"")
    return tmp_path


def test_only_directories_with_one_file_count(directory: Path) -> None:
    names = ["none", "one", "two", "gone", "deep", "file", "empty"]
    found = OsFileSystem().only_files(directory, names, LENGTH)
    assert found == [
        None, OnlyFile("f", 3, 3, b"abc"), None, None, None, None, OnlyFile("f", 0, 0, b""),
    ]  # fmt: skip
    assert FileSystem.only_files(OsFileSystem(), directory, names, LENGTH) == found


def test_a_directory_that_is_gone_has_none(directory: Path) -> None:
    assert OsFileSystem().only_files(directory / "gone", ["one"], LENGTH) == [None]


def test_a_long_file_gives_its_begin_and_its_end(directory: Path) -> None:
    data = bytes(range(256)) * 40
    (found,) = OsFileSystem().only_files(directory, ["long"], LENGTH)
    assert found is not None
    assert (found.data_end, found.head) == (len(data), data[:LENGTH])
    assert found.tail == data[found.tail_position :]
    assert len(found.tail) >= LENGTH


def test_a_hole_at_the_end_is_not_read(directory: Path) -> None:
    path = directory / "one" / "f"
    with path.open("r+b") as file:
        file.truncate(1 << 30)
    (found,) = OsFileSystem().only_files(directory, ["one"], LENGTH)
    assert found is not None
    assert found.data_end <= LENGTH
    assert found.head == b"abc".ljust(LENGTH, b"\0")
    assert found.tail == b""


def test_data_after_a_hole_is_the_end(directory: Path) -> None:
    path = directory / "one" / "f"
    with path.open("r+b") as file:
        file.truncate(1 << 24)
        file.seek(1 << 20)
        file.write(b"last")
    (found,) = OsFileSystem().only_files(directory, ["one"], LENGTH)
    assert found is not None
    assert found.tail_position <= 1 << 20 < found.data_end
    assert found.tail[(1 << 20) - found.tail_position :].startswith(b"last")


def test_another_file_system_reads_them_one_by_one(directory: Path) -> None:
    listed: list[Path] = []

    class Own(OsFileSystem):
        only_files = FileSystem.only_files

        def list_directory(self, path: Path) -> list[DirectoryEntry]:
            listed.append(path)
            return super().list_directory(path)

    assert Own().only_files(directory, ["one", "long"], LENGTH) == OsFileSystem().only_files(
        directory, ["one", "long"], LENGTH
    )
    assert listed == [directory / "one", directory / "long"]
