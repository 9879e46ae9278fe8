"""A look at very many queues reads each one's file once, and says the same as a look at each."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engine_store import small_config
from flips import flip, overwrite
from steps_to_try import cases_to_try

from storage import Message, MessageStore
from storage.files.filesystem import FileSystem
from storage.files.protocol import DirectoryEntry
from storage.format.consume_entry import LAYOUT, PREFILL_SIZE, UNIT_SIZE
from storage.reader import StoreReader
from storage.view.queues import views
from storage.view.queues.extent import QueueExtent

CONFIG = small_config(commit_log_file_size=1 << 20, consume_queue_file_size=600 * UNIT_SIZE)
COUNTS = (1, 3, 203, 204, 205, 206, 500, 700, 0, 40)  # of messages by queue; 204.8 units are a page


class Listings(FileSystem):
    def __init__(self) -> None:
        super().__init__()
        self.listed: list[Path] = []

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        self.listed.append(path)
        return super().list_directory(path)


@pytest.fixture(scope="module")
def on_disk() -> Iterator[Path]:
    """What was set aside for a file is a hole of it there, not so where pytest's directories are in memory."""
    with TemporaryDirectory() as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def whole(on_disk: Path) -> Path:
    directory = on_disk / "whole"
    with MessageStore.open(directory, CONFIG) as opened:
        opened.create_topic("wide", len(COUNTS))
        for queue_id, count in enumerate(COUNTS):
            opened.put_all(
                [
                    Message(topic="wide", body=b"x" * (n % 50), queue_id=queue_id)
                    for n in range(count)
                ]
            )
    return directory


def copy_with_hole(source: str, target: str) -> None:
    """Copy up to where a file has data: a look at many queues asks for that, too."""
    data = Path(source).read_bytes()
    with Path(source).open("rb") as file:
        end = os.lseek(file.fileno(), 0, os.SEEK_HOLE) if data else 0
    assert not data[end:].strip(b"\0")
    with Path(target).open("wb") as file:
        file.write(data[:end])
        file.truncate(len(data))


@pytest.fixture
def store(whole: Path, on_disk: Path) -> Iterator[Path]:
    copy = shutil.copytree(whole, on_disk / "s", copy_function=copy_with_hole)
    yield copy
    shutil.rmtree(copy)


def unit_file(store: Path, queue_id: int) -> Path:
    return store / "consumequeue/wide" / str(queue_id) / f"{0:020}"


def looked_at(
    store: Path, bounds: tuple[int, int] | None = None, *, estimate_bytes: bool = False
) -> tuple[list[QueueExtent], list[Path]]:
    """Return what a look at queues says, and the directories that it listed."""
    filesystem = Listings()
    with StoreReader.open(store, filesystem=filesystem, bounds=bounds) as reader:
        filesystem.listed.clear()
        return reader.queue_extents(estimate_bytes=estimate_bytes), filesystem.listed


def check_same(store: Path, bounds: tuple[int, int] | None = None) -> list[Path]:
    """Compare a look at queues that are kept with one at too many; return the directories of queues that it listed."""
    listed: list[Path] = []
    for estimate_bytes in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            expected, _ = looked_at(store, bounds, estimate_bytes=estimate_bytes)
            patch.setattr(views, "QUEUES_MAX", 2)
            found, listed = looked_at(store, bounds, estimate_bytes=estimate_bytes)
        assert found == expected
        if not estimate_bytes:
            looked_closer = [path for path in listed if path.parent.name == "wide"]
    return looked_closer


def test_queues_in_order_take_one_look(store: Path) -> None:
    closer = check_same(store)
    assert {path.name for path in closer} == {"7"}  # it has two files


def test_queues_are_as_long_as_the_log_is_visible(store: Path) -> None:
    with StoreReader.open(store) as reader:
        ends = [
            extent.commit_range[1]
            for extent in reader.queue_extents()
            if extent.commit_range is not None
        ]
    for end in (0, ends[0], ends[2], ends[5] - 1, ends[6] - 500):
        check_same(store, (0, end))
        check_same(store, (end, ends[-1]))


PREFILLED = LAYOUT.pack(0, PREFILL_SIZE, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: overwrite(path, 0, PREFILLED),
        lambda path: overwrite(path, 0, 3 * PREFILLED),
        lambda path: overwrite(path, 0, bytes(4096)),
        lambda path: overwrite(path, 4096, bytes(4096)),
        lambda path: overwrite(path, 0, struct.pack(">q", -1)),
        lambda path: path.rename(path.with_name("beside")),
        lambda path: path.with_name("beside").write_bytes(b""),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[: 2 * UNIT_SIZE + 7]),
        lambda path: path.rename(path.with_name(f"{600 * UNIT_SIZE:020}")),
    ],
    ids=range(11),
)
@pytest.mark.parametrize("queue_id", [1, 6])
def test_odd_files_are_looked_at_closer(
    store: Path, queue_id: int, change: Callable[[Path], object]
) -> None:
    change(unit_file(store, queue_id))
    check_same(store)


@pytest.mark.parametrize("queue_id", cases_to_try([2, 6, 0, 4, 9], 2))
@pytest.mark.parametrize("which", ["first", "middle", "last", "after the last"])
@pytest.mark.parametrize("bit", cases_to_try([25, 90, 0, 61, 120], 2))
def test_a_damaged_unit_is_looked_at_closer(
    store: Path, queue_id: int, which: str, bit: int
) -> None:
    count = COUNTS[queue_id]
    index = {"first": 0, "middle": count // 2, "last": count - 1, "after the last": count}[which]
    path = unit_file(store, queue_id)
    at = index * UNIT_SIZE + bit // 8
    flip(path, at, 1 << bit % 8)
    check_same(store)
