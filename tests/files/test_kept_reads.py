"""What was read of a file is read again where it changed, and only there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storage.files.filesystem import OsFileSystem
from storage.files.kept_reads import KeptReads
from storage.testing.clock import FIRST_S, SteppedClock

NOW_NS = round(FIRST_S * 1e9)


class Reads:
    """Reads files and counts."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, path: Path) -> bytes:
        self.count += 1
        return path.read_bytes()


def age(path: Path, seconds: float) -> None:
    moment = NOW_NS - int(seconds * 1e9)
    os.utime(path, ns=(moment, moment))


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture
def kept(reads: Reads) -> KeptReads[bytes]:
    return KeptReads(OsFileSystem(), reads, SteppedClock())


def test_a_file_that_does_not_change_is_read_once(
    tmp_path: Path, kept: KeptReads[bytes], reads: Reads
) -> None:
    path = tmp_path / "settings"
    path.write_bytes(b"one")
    age(path, 5)

    assert [kept.get(path) for _ in range(3)] == [b"one"] * 3
    assert reads.count == 1


def test_a_file_of_the_same_length_in_its_place_is_read(
    tmp_path: Path, kept: KeptReads[bytes]
) -> None:
    """A table is replaced by rename: even with the time of the one before it is another file."""
    path, other = tmp_path / "settings", tmp_path / "other"
    path.write_bytes(b"one")
    other.write_bytes(b"two")
    age(path, 5)
    age(other, 5)
    assert kept.get(path) == b"one"

    other.rename(path)

    assert kept.get(path) == b"two"


def test_what_changed_a_moment_ago_is_read_each_time(
    tmp_path: Path, kept: KeptReads[bytes], reads: Reads
) -> None:
    """It may change again within a step of the file system's clock."""
    path = tmp_path / "settings"
    path.write_bytes(b"one")
    age(path, 0.5)
    assert kept.get(path) == b"one"

    path.write_bytes(b"two")
    age(path, 0.5)

    assert kept.get(path) == b"two"
    assert reads.count == 2


def test_a_file_that_is_gone_is_missing(tmp_path: Path, kept: KeptReads[bytes]) -> None:
    path = tmp_path / "settings"
    path.write_bytes(b"one")
    age(path, 5)
    assert kept.get(path) == b"one"

    path.unlink()

    with pytest.raises(FileNotFoundError):
        kept.get(path)
