"""What the operating-system file system guarantees."""

from __future__ import annotations

import errno
import gc
import os
import resource
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from open_files import descriptors_below

from storage.files import libc
from storage.files.filesystem import OsFile, OsFileSystem

FILESYSTEM = OsFileSystem()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_an_allocated_file_has_its_length_and_its_blocks(tmp_path):
    """No store to a map of it can find the disk full."""
    file = FILESYSTEM.create(tmp_path / "f", 1 << 20, allocate=True)
    status = (tmp_path / "f").stat()
    assert file.size == status.st_size == 1 << 20
    assert status.st_blocks * 512 >= 1 << 20
    assert not file.map(writable=False).array.any()


def test_a_sparse_file_costs_no_blocks(tmp_path):
    """Ten thousand consume queues must not cost 60 GB."""
    FILESYSTEM.create(tmp_path / "f", 6_000_000, allocate=False)
    status = (tmp_path / "f").stat()
    assert status.st_size == 6_000_000
    assert status.st_blocks == 0


def test_create_refuses_an_existing_file_and_leaves_it_alone(tmp_path):
    (tmp_path / "f").write_bytes(b"here")
    with pytest.raises(FileExistsError):
        FILESYSTEM.create(tmp_path / "f", 100, allocate=True)
    assert (tmp_path / "f").read_bytes() == b"here"
    assert names(tmp_path) == ["f"]


def test_a_file_has_its_head_when_it_gets_its_name(tmp_path, monkeypatch):
    named = []
    give_name = OsFile.give_name

    def record(self, *place):
        named.append(self.pread(7, 0))
        give_name(self, *place)

    monkeypatch.setattr(OsFile, "give_name", record)

    file = FILESYSTEM.create(tmp_path / "f", 100, allocate=False, head=b"head")

    assert file.pread(100, 0) == b"head" + bytes(96)
    assert named == [b"head\0\0\0"]


def test_allocation_without_fallocate_writes_whole_blocks_and_keeps_what_is_there(
    tmp_path, monkeypatch
):
    """glibc would emulate with one byte a block; we write zeros, and data stays data."""
    monkeypatch.setattr(libc, "_fallocate", lambda *_: False)
    writes = []
    pwrite = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, at: (writes.append(len(data)), pwrite(fd, data, at))[1]
    )
    file = FILESYSTEM.create(tmp_path / "f", 0, allocate=False)
    file.pwrite(b"abc", 0)
    writes.clear()
    file.allocate(0, (3 << 20) + 5)
    assert writes == [1 << 20, 1 << 20, 1 << 20, 5]
    assert file.pread(5, 0) == b"abc\0\0"
    assert (tmp_path / "f").stat().st_blocks * 512 >= 3 << 20


def test_no_space_is_store_full_and_leaves_nothing(tmp_path):
    """A file-size limit stands for a full disk; a failed creation must not leave a short file."""
    program = f"""
        import os, resource, sys
        from pathlib import Path
        from storage.errors import StoreFull
        from storage.files.filesystem import OsFileSystem
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        fs, d = OsFileSystem(), Path({str(tmp_path)!r})
        for call in (
            lambda: fs.create(d / "big", 2 << 20, allocate=True),
            lambda: fs.create(d / "sparse", 2 << 20, allocate=False),
        ):
            try: call()
            except StoreFull: pass
            else: sys.exit("created")
        assert os.listdir(d) == [], os.listdir(d)
        file = fs.create(d / "small", 1 << 20, allocate=True)
        for call in (
            lambda: file.pwrite(b"x", 1 << 20),
            lambda: file.allocate(0, 2 << 20),
            lambda: file.extend(2 << 20),
        ):
            try: call()
            except StoreFull: pass
            else: sys.exit("written")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        file.pwrite(b"x", 1 << 20)
        fs.create(d / "big", 2 << 20, allocate=True)
    """
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_stores_to_a_map_are_read_by_others_and_pwrite_shows_in_maps(tmp_path):
    file = FILESYSTEM.create(tmp_path / "f", 8192, allocate=True)
    array = file.map(writable=True).array
    array[5000] = 7
    other = FILESYSTEM.open(tmp_path / "f", writable=False)
    view = other.map(writable=False).array
    assert other.pread(1, 5000) == b"\7"
    file.pwrite(np.array([1, 2, 3], np.uint8), 8189)
    assert view[8189:].tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_a_file_unlinked_under_a_map_stays_readable(tmp_path):
    """Retention deletes files that a reader is still sending from."""
    FILESYSTEM.create(tmp_path / "f", 8192, allocate=True).pwrite(b"kept", 4096)
    file = FILESYSTEM.open(tmp_path / "f", writable=False)
    region = file.map(writable=False)
    view = region.array[4096:4100]
    FILESYSTEM.unlink(tmp_path / "f")
    file.close()
    region.close()
    del region
    gc.collect()
    assert view.tobytes() == b"kept"
    with pytest.raises(FileNotFoundError):
        FILESYSTEM.open(tmp_path / "f", writable=False)


def test_closing_a_region_unmaps_once_the_last_view_is_gone(tmp_path):
    path = tmp_path / "mapped-and-let-go"
    FILESYSTEM.create(path, 8192, allocate=True)
    region = FILESYSTEM.open(path, writable=True).map(writable=True)
    view = region.array[:10]
    region.close()
    with pytest.raises(ValueError, match="closed"):
        _ = region.array
    assert str(path) in Path("/proc/self/maps").read_text()
    del view
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_populating_changes_no_byte(tmp_path):
    file = FILESYSTEM.create(tmp_path / "f", 1 << 20, allocate=True)
    region = file.map(writable=True)
    region.array[:] = 9
    region.populate(4000, 700_000)
    region.populate(0, 5 << 20)
    assert (region.array == 9).all()


def test_zero_clears_a_range_and_keeps_the_length(tmp_path):
    file = FILESYSTEM.create(tmp_path / "f", 0, allocate=False)
    file.pwrite(b"x" * 20_000, 0)
    file.zero(100, 10_000)
    file.zero(19_990, 1000)
    assert file.pread(30_000, 0) == b"x" * 100 + bytes(10_000) + b"x" * 9_890 + bytes(10)


def test_extend_never_shortens(tmp_path):
    file = FILESYSTEM.create(tmp_path / "f", 100, allocate=False)
    file.extend(50)
    assert file.size == 100
    file.extend(150)
    assert file.size == 150


class Recording(OsFileSystem):
    """Notes the order of what matters for a crash."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def create(self, path, size, *, allocate, mode=0o644):
        self.calls.append(f"create {path.name}")
        file = super().create(path, size, allocate=allocate, mode=mode)
        sync_all = file.sync_all
        file.sync_all = lambda: (self.calls.append(f"sync {path.name}"), sync_all())
        return file

    def rename(self, source, target):
        self.calls.append(f"rename {source.name} {target.name}")
        super().rename(source, target)

    def link(self, source, target):
        self.calls.append(f"link {source.name} {target.name}")
        super().link(source, target)

    def sync_directory(self, path):
        self.calls.append("sync directory")
        super().sync_directory(path)


def test_atomic_write_syncs_before_it_renames_and_the_directory_after(tmp_path):
    """The order is the crash argument: rocketmq #3401 lost offsets by overwriting in place."""
    filesystem = Recording()
    path = tmp_path / "topics.json"
    filesystem.write_atomically(path, b"one")
    filesystem.calls.clear()
    filesystem.write_atomically(path, b"two")
    assert filesystem.calls == [
        "create topics.json.tmp",
        "sync topics.json.tmp",
        "link topics.json topics.json.bak.tmp",
        "rename topics.json.bak.tmp topics.json.bak",
        "rename topics.json.tmp topics.json",
        "sync directory",
    ]
    assert filesystem.read_bytes(path) == b"two"
    assert filesystem.read_bytes(tmp_path / "topics.json.bak") == b"one"
    assert names(tmp_path) == ["topics.json", "topics.json.bak"]


def test_atomic_write_survives_what_an_earlier_crash_left(tmp_path):
    path = tmp_path / "f"
    for name in ("f", "f.tmp", "f.bak.tmp", "f.bak"):
        (tmp_path / name).write_bytes(name.encode())
    FILESYSTEM.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert (tmp_path / "f.bak").read_bytes() == b"f"
    assert names(tmp_path) == ["f", "f.bak"]


def test_atomic_write_that_fails_leaves_the_old_version(tmp_path, monkeypatch):
    FILESYSTEM.write_atomically(tmp_path / "f", b"old")

    def fail(descriptor):
        raise OSError(errno.EIO, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="injected"):
            FILESYSTEM.write_atomically(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_files_do_not_leak_descriptors(tmp_path):
    for index in range(50):
        file = FILESYSTEM.create(tmp_path / str(index), 4096, allocate=True)
        file.map(writable=True).array[0] = 1
    assert descriptors_below(tmp_path)
    del file
    gc.collect()
    assert descriptors_below(tmp_path) == []


def test_few_writable_bytes_are_written_where_they_belong_and_a_failure_is_an_error(tmp_path):
    """Up to a page goes to the system in one call that keeps the GIL; errors are as of the others."""
    file = OsFileSystem().create(tmp_path / "f", 100, allocate=False)
    file.pwrite(memoryview(bytearray(b"few")), 7)
    assert file.pread(12, 0) == bytes(7) + b"few" + bytes(2)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.pwrite(memoryview(bytearray(b"few")), 0)


def test_data_is_found_without_reading_holes(tmp_path: Path) -> None:
    size, at = 64 << 20, 10 << 20
    file = FILESYSTEM.create(tmp_path / "f", size, allocate=False)
    assert file.next_data(0) in [(size, size), (0, size)]  # the latter where there are no holes
    file.pwrite(b"x", at)
    begin, end = file.next_data(0)
    assert begin <= at < end
    assert file.next_data(at)[0] == at
    if begin:
        assert end - begin <= 1 << 20
        assert file.next_data(end) == (size, size)
    file.close()
