"""What the operating-system file system guarantees."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from storage import modes
from storage.files import libc
from storage.files.filesystem import File, FileSystem
from storage.files.only_files import OnlyFile
from storage.stopped.files import write_queue

FILESYSTEM = FileSystem()


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_create_refuses_an_existing_file_and_leaves_it_alone(tmp_path):
    (tmp_path / "f").write_bytes(b"here")
    with pytest.raises(FileExistsError):
        FILESYSTEM.create(tmp_path / "f", 100, allocate=True)
    assert (tmp_path / "f").read_bytes() == b"here"
    assert names(tmp_path) == ["f"]


def test_a_file_has_its_head_when_it_gets_its_name(tmp_path, monkeypatch):
    named = []
    give_name = File.give_name

    def record(self, *place):
        named.append(self.pread(7, 0))
        give_name(self, *place)

    monkeypatch.setattr(File, "give_name", record)

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
        from storage.files.filesystem import FileSystem
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        fs, d = FileSystem(), Path({str(tmp_path)!r})
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


class Recording(FileSystem):
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


def test_few_writable_bytes_are_written_where_they_belong_and_a_failure_is_an_error(tmp_path):
    """Up to a page goes to the system in one call that keeps the GIL; errors are as of the others."""
    file = FileSystem().create(tmp_path / "f", 100, allocate=False)
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


@pytest.fixture
def made(tmp_path):
    """Makes one of each kind; returns the modes by name."""

    def make():
        filesystem = FileSystem()
        for name, allocate in (("allocated", True), ("sparse", False)):
            filesystem.create(tmp_path / name, 4096, allocate=allocate).close()
        for version in (b"1", b"2"):
            filesystem.write_atomically(tmp_path / "table", version)
        filesystem.make_directory(tmp_path / "outer" / "inner")
        filesystem.lock(tmp_path / "lock", 0, b"").release()
        return {
            str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
            for path in tmp_path.rglob("*")
        }

    before = os.umask(0o022)
    yield make
    os.umask(before)
    modes.share(shared=False)


FILES = {"allocated", "sparse", "table", "table.bak", "lock"}


DIRECTORIES = {"outer", "outer/inner"}


@pytest.mark.parametrize(
    ("shared", "of_file", "of_directory"), [(False, 0o600, 0o700), (True, 0o644, 0o755)]
)
def test_what_is_made_has_the_mode_of_its_process(made, shared, of_file, of_directory):
    modes.share(shared=shared)
    assert made() == dict.fromkeys(FILES, of_file) | dict.fromkeys(DIRECTORIES, of_directory)


@pytest.mark.parametrize(("mode", "of_file"), [(0o700, 0o600), (0o755, 0o644)])
def test_a_task_makes_files_for_whom_the_job_has_made_their_directory(
    tmp_path, made, mode, of_file
):
    work = tmp_path / "work"
    work.mkdir()
    work.chmod(mode)
    write_queue(work / "consumequeue" / "orders" / "0", 0, bytes(20), 200)
    made_by_it = {path.is_file(): stat.S_IMODE(path.stat().st_mode) for path in work.rglob("*")}
    assert made_by_it == {False: mode, True: of_file}


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
    found = FileSystem().only_files(directory, names, LENGTH)
    assert found == [
        None, OnlyFile("f", 3, 3, b"abc"), None, None, None, None, OnlyFile("f", 0, 0, b""),
    ]  # fmt: skip


def test_data_after_a_hole_is_the_end(directory: Path) -> None:
    path = directory / "one" / "f"
    with path.open("r+b") as file:
        file.truncate(1 << 24)
        file.seek(1 << 20)
        file.write(b"last")
    (found,) = FileSystem().only_files(directory, ["one"], LENGTH)
    assert found is not None
    assert found.tail_position <= 1 << 20 < found.data_end
    assert found.tail[(1 << 20) - found.tail_position :].startswith(b"last")


def test_a_directory_that_is_gone_has_none(directory: Path) -> None:
    assert FileSystem().only_files(directory / "gone", ["one"], LENGTH) == [None]


def test_what_is_held_is_reached_by_name_only_where_it_was(tmp_path):
    """Neither in another directory of its name, nor by making it once more."""
    store, disk = tmp_path / "store", FileSystem()
    disk.make_directory(store / "log")
    disk.create(store / "log" / "0", 1, allocate=False).close()
    disk.hold(store)
    assert disk.exists(store / "log" / "0")
    assert [entry.name for entry in disk.list_directory(store)] == ["log"]
    store.rename(tmp_path / "moved")
    for _ in range(2):
        for use in (
            lambda: disk.make_directory(store / "queues"),
            lambda: disk.create(store / "log" / "1", 1, allocate=False),
            lambda: disk.open(store / "log" / "0", writable=False),
            lambda: disk.list_directory(store / "log"),
            lambda: disk.write_atomically(store / "table", b""),
            lambda: disk.status(store),
        ):
            with pytest.raises(OSError, match="was renamed or removed") as refused:
                use()
            assert refused.value.errno == errno.ESTALE
        (tmp_path / "other" / "log").mkdir(parents=True, exist_ok=True)
        if not store.exists():
            (tmp_path / "other").rename(store)
    assert not list((store / "log").iterdir())
    assert disk.list_directory(tmp_path / "stored") == []
