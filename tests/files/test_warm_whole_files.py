"""The page cache of whole log files filled beforehand: what for, how far, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_store import append, record, records_on_disk, small_config
from real_processes import until

from bench.resident import cached_bytes
from storage.files.allocator import MappedFileAllocator
from storage.files.filesystem import FileSystem
from storage.store import MessageStore
from storage.writer import StoreWriter

MIB = 1 << 20
SIZE = 64 * MIB
WINDOW = 1 * MIB


def resident_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError("no VmRSS")


def is_filled(path: Path) -> bool:
    """Whether more is cached than the window; not all, as a machine may take idle pages back."""
    return path.exists() and cached_bytes([path]) > path.stat().st_size * 3 // 4


def make(directory, **options):
    given = {"file_size": SIZE, "warm_ahead_bytes": WINDOW}
    given |= {"warm_cache_bytes_max": 2 * options.get("file_size", SIZE)}
    return MappedFileAllocator(FileSystem(), directory / "log", **(given | options))


@pytest.fixture
def allocator(tmp_path):
    allocator = make(tmp_path)
    yield allocator
    allocator.close()


def work_off(allocator) -> None:
    """Do what the thread does, in a test that has not started it."""
    while allocator.warmer.step() is not None:
        pass


def test_this_file_and_the_next_are_cached_and_not_resident(allocator, tmp_path):
    before = resident_bytes()
    allocator.start()
    allocator.prepare(0, wait=True)
    names = [tmp_path / "log" / f"{start:020d}" for start in (0, SIZE)]
    until(lambda: is_filled(names[0]))  # before anybody appends to it
    mapped = allocator.take(0)
    until(lambda: is_filled(names[1]))
    assert resident_bytes() - before < SIZE // 2
    assert mapped.appended_position == 0
    for path in names:
        assert path.stat().st_size == SIZE
        assert not any(path.read_bytes())


def test_filling_keeps_what_was_stored(tmp_path):
    allocator = make(tmp_path, file_size=4 * MIB)
    mapped = allocator.take(0)
    mapped.array[:] = 7
    mapped.mark_appended(MIB)
    work_off(allocator)
    assert (mapped.array == 7).all()
    assert len(mapped.array) == mapped.path.stat().st_size == 4 * MIB
    allocator.close()


@pytest.mark.parametrize("warm_ahead_bytes", [0, WINDOW])
def test_a_store_without_services_fills_and_rolls(tmp_path, warm_ahead_bytes):
    size = 4 * MIB
    config = small_config(
        commit_log_file_size=size, warm_cache_bytes_max=2 * size, warm_ahead_bytes=warm_ahead_bytes
    )
    log = tmp_path / "store" / "commitlog"
    block = b"".join(record(body=b"%04d" % number * 250) for number in range(64))
    with MessageStore.open(tmp_path / "store", config):
        until(lambda: is_filled(log / f"{0:020d}"))
    with StoreWriter.open(tmp_path / "store", config) as writer:
        writer.create_topic("t", 4)
        for _ in range(80):
            append(writer, block)
        until(lambda: is_filled(log / f"{2 * size:020d}"))
    bodies = [b"%04d" % number * 250 for number in range(64)]
    assert [each.body for each in records_on_disk(tmp_path / "store")] == bodies * 80
