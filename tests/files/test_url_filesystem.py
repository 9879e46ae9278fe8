"""Files at a URL: what a listing, a read and a map give, and what is fetched for it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from storage.errors import StoreChanged
from storage.files.filesystem import FileSystem
from storage.files.ranges import grouped
from storage.files.url_filesystem import BLOCK_SIZE, UrlFileSystem

fsspec = pytest.importorskip("fsspec")

CONTENT = np.random.default_rng(3).bytes(5 * BLOCK_SIZE + 7)


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    filesystem.pipe("/url/a/b/file", CONTENT)
    filesystem.pipe("/url/top", b"top")
    yield filesystem
    filesystem.rm("/url", recursive=True)


@pytest.fixture
def files(memory: Any) -> UrlFileSystem:
    return UrlFileSystem("memory://url")


def test_directories_are_listed_as_those_of_this_machine_are(
    files: UrlFileSystem, tmp_path: Path
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").write_bytes(CONTENT)
    (tmp_path / "top").write_bytes(b"top")
    here = FileSystem()
    for name in ("", "a", "a/b", "none"):
        assert files.list_directory(Path("/", name)) == here.list_directory(tmp_path / name), name
        assert files.exists(Path("/", name)) == here.exists(tmp_path / name), name
    assert files.exists(Path("/a/b/file")) and not files.exists(Path("/a/b/other"))


def test_reads_give_the_bytes_of_the_file(files: UrlFileSystem) -> None:
    file = files.open(Path("/a/b/file"), writable=False)

    assert file.size == len(CONTENT)
    for begin, end in ((0, 10), (BLOCK_SIZE - 3, BLOCK_SIZE + 3), (7, len(CONTENT))):
        assert file.pread(end - begin, begin) == CONTENT[begin:end]
    assert file.pread(100, len(CONTENT) - 5) == CONTENT[-5:]
    assert file.pread(100, len(CONTENT)) == b""
    assert files.read_bytes(Path("/a/b/file")) == CONTENT
    assert files.map_ranges(file.path, 0).tobytes() == CONTENT


def test_a_block_is_fetched_once(files: UrlFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int | None] = []
    fetch = UrlFileSystem._fetch

    def noted(self: UrlFileSystem, path: Path, begin: int, end: int | None) -> bytes:
        fetched.append(begin)
        return fetch(self, path, begin, end)

    monkeypatch.setattr(UrlFileSystem, "_fetch", noted)
    file = files.open(Path("/a/b/file"), writable=False)
    for position in (0, 20, BLOCK_SIZE - 20, BLOCK_SIZE, 40):
        file.pread(20, position)

    assert fetched == [0, BLOCK_SIZE]


def test_a_missing_file_has_its_url_in_the_error(files: UrlFileSystem) -> None:
    for read in (
        lambda: files.read_bytes(Path("/a/none")),
        lambda: files.open(Path("/a/none"), writable=False).pread(1, 0),
        lambda: files.map_ranges(Path("/a/none"), 0, 10),
    ):
        with pytest.raises(FileNotFoundError) as missing:
            read()
        assert missing.value.filename == "memory://url/a/none"


def test_a_file_that_got_shorter_is_a_store_that_changed(files: UrlFileSystem, memory: Any) -> None:
    assert files.size(Path("/a/b/file")) == len(CONTENT)
    files.list_directory(Path("/"))
    memory.pipe("/url/a/b/file", CONTENT[:100])

    with pytest.raises(StoreChanged, match="memory://url/a/b/file ends at 100"):
        files.map_ranges(Path("/a/b/file"), 0)


def test_nothing_is_written_through_it(files: UrlFileSystem) -> None:
    with pytest.raises(OSError, match="read only"):
        files.open(Path("/top"), writable=True)


def test_what_is_pickled_opens_the_same_files_again(files: UrlFileSystem, memory: Any) -> None:
    """With its options, and with no listing: what came meanwhile is seen."""
    assert not files.exists(Path("/new"))
    memory.pipe("/url/new", b"new")

    again = pickle.loads(pickle.dumps(files))
    assert again.read_bytes(Path("/new")) == b"new" and again.exists(Path("/new"))
    assert not files.exists(Path("/new"))


def test_requests_are_grouped_by_what_they_fetch() -> None:
    assert list(grouped([(0, 10), (20, 23), (50, 60)], 4, 8)) == [
        [(0, 4), (4, 8)],
        [(8, 10), (20, 23)],
        [(50, 54), (54, 58)],
        [(58, 60)],
    ]
