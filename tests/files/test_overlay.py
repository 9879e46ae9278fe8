"""Recovery may run over any directory without changing a byte of it."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess

import pytest
from open_files import descriptors_below

from storage.checkpoint.positions import CheckpointFile, Role
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.filesystem import OsFileSystem
from storage.files.mapped_file_queue import MappedFileQueue
from storage.files.overlay import OverlayFileSystem


@pytest.fixture
def base(tmp_path):
    directory = tmp_path / "store"
    (directory / "commitlog").mkdir(parents=True)
    (directory / "commitlog" / f"{0:020d}").write_bytes(b"a" * 8192)
    (directory / "commitlog" / f"{8192:020d}").write_bytes(b"b" * 5000)
    (directory / "topics.json").write_bytes(b"{}")
    return directory


def snapshot(directory):
    return {
        path.relative_to(directory): (
            path.stat().st_mtime_ns,
            path.stat().st_ino,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [directory, *directory.rglob("*")]
    }


def change_everything(filesystem, base):
    """Do all that recovery does, and more."""
    DirectoryLock.acquire(filesystem, base, LockRole.WRITER)
    queue = MappedFileQueue(filesystem, base / "commitlog", file_size=8192)
    queue.find(0).array[10:20] = 1
    queue.extend(8192, 8192).array[6000] = 3
    queue.create(2 * 8192).array[:] = 4
    queue.remove(0)
    filesystem.write_atomically(base / "topics.json", b"[]")
    filesystem.make_directory(base / "consumequeue" / "t" / "0")
    units = filesystem.create(base / "consumequeue" / "t" / "0" / "0", 6000, allocate=False)
    units.pwrite(b"unit", 20)
    headed = filesystem.create(base / "headed", 6, allocate=False, head=b"head")
    assert headed.pread(6, 0) == b"head\0\0"
    units.sync()
    filesystem.sync_directory(base / "consumequeue")
    page = CheckpointFile.open(filesystem, base / "checkpoint", Role.WRITER, boot_id=b"b" * 16)
    page.durable.store(store_id=b"s" * 16, flushed_offset=1, dispatched_offset=1, unit_count=1)
    return queue, page


def array_at(queue, offset, length):
    file = queue.find(offset)
    return file.array[offset - file.start_offset :][:length]


def test_the_base_stays_as_it_was_byte_for_byte(base):
    before = snapshot(base)
    filesystem = OverlayFileSystem(base)
    change_everything(filesystem, base)
    assert snapshot(base) == before


def test_changes_are_there_for_this_process_alone(base):
    filesystem = OverlayFileSystem(base)
    queue, _ = change_everything(filesystem, base)
    assert array_at(queue, 8192 + 6000, 1).tolist() == [3]
    names = [entry.name for entry in filesystem.list_directory(base / "commitlog")]
    assert names == [f"{8192:020d}", f"{16384:020d}"]
    again = MappedFileQueue(filesystem, base / "commitlog", file_size=8192)
    assert again.find(0) is None
    assert array_at(again, 8192, 8192).tobytes() == b"b" * 5000 + bytes(1000) + b"\3" + bytes(2191)
    assert array_at(again, 16384, 2).tolist() == [4, 4]
    assert filesystem.read_bytes(base / "topics.json") == b"[]"
    assert filesystem.read_bytes(base / "topics.json.bak") == b"{}"
    units = filesystem.open(base / "consumequeue" / "t" / "0" / "0", writable=False)
    assert units.pread(30, 0) == bytes(20) + b"unit" + bytes(6)
    assert units.size == 6000
    page = CheckpointFile.open(filesystem, base / "checkpoint", Role.READER, boot_id=b"b" * 16)
    assert page.durable.load().flushed_offset == 1
    assert OverlayFileSystem(base).read_bytes(base / "topics.json") == b"{}"


def test_a_directory_that_may_not_be_written_will_do(base):
    """The process drops its rights, since root may write anywhere."""
    for path in base.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    base.chmod(0o555)
    for parent in list(base.parents)[:4]:
        if parent.stat().st_uid == os.getuid():
            parent.chmod(parent.stat().st_mode | 0o555)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.getuid() == 0:
                os.setresuid(65534, 65534, 65534)
            try:
                OsFileSystem().create(base / "x", 1, allocate=False)
            except PermissionError:
                change_everything(OverlayFileSystem(base), base)
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_every_opening_sees_the_same_changes(base):
    filesystem = OverlayFileSystem(base)
    path = base / "commitlog" / f"{0:020d}"
    reader = filesystem.open(path, writable=False)
    view = reader.map(writable=False)
    filesystem.open(path, writable=True).pwrite(b"xyz", 8)
    filesystem.open(path, writable=True).map(writable=True).array[11] = ord("!")
    gc.collect()
    assert view.array[7:13].tobytes() == b"axyz!a"
    assert reader.pread(6, 7) == b"axyz!a"
    assert filesystem.open(path, writable=False).pread(6, 7) == b"axyz!a"
    with pytest.raises(ValueError, match="read-only"):
        view.array[0] = 1


def test_what_a_running_store_makes_meanwhile_is_not_in_the_view(base):
    filesystem, running = OverlayFileSystem(base), OsFileSystem()
    queue = base / "consumequeue" / "orders" / "0"
    before = filesystem.list_directory(base / "commitlog")
    assert not filesystem.exists(queue / f"{0:020d}")
    running.make_directory(queue)
    running.create(queue / f"{0:020d}", 20, allocate=False, head=b"theirs")
    running.create(base / "commitlog" / f"{24576:020d}", 8192, allocate=False)
    assert filesystem.list_directory(base / "commitlog") == before
    filesystem.make_directory(queue)
    assert filesystem.list_directory(queue) == []
    filesystem.create(queue / f"{0:020d}", 20, allocate=False, head=b"ours")
    assert filesystem.read_bytes(queue / f"{0:020d}")[:6] == b"ours\0\0"
    assert running.read_bytes(queue / f"{0:020d}")[:6] == b"theirs"


def test_changes_live_on_when_nobody_has_the_file_open(base):
    filesystem = OverlayFileSystem(base)
    path = base / "commitlog" / f"{0:020d}"
    filesystem.open(path, writable=True).pwrite(b"kept", 0)
    gc.collect()
    assert filesystem.open(path, writable=False).pread(5, 0) == b"kepta"


def test_unchanged_and_new_files_hold_no_descriptors(base, monkeypatch, tmp_path):
    """Tens of thousands of queue files are read, and made, in one go."""
    filesystem = OverlayFileSystem(base)
    for index in range(100):
        (base / str(index)).write_bytes(b"x" * 100)
    scratch = scratch_directory(monkeypatch, tmp_path)
    for index in range(100):
        assert filesystem.open(base / str(index), writable=True).pread(1, 0) == b"x"
        filesystem.create(base / f"new{index}", 100, allocate=False)
    gc.collect()
    assert descriptors_below(base) == []
    assert len(descriptors_below(scratch)) == 1


def test_files_opened_for_reading_refuse_changes(base):
    file = OverlayFileSystem(base).open(base / "topics.json", writable=False)
    for change in (
        lambda: file.pwrite(b"x", 0),
        lambda: file.map(writable=True),
        lambda: file.extend(10),
        lambda: file.allocate(0, 10),
        lambda: file.zero(0, 1),
    ):
        with pytest.raises(PermissionError):
            change()


def test_nothing_outside_the_base_may_change(base, tmp_path):
    (tmp_path / "outside").write_bytes(b"x")
    filesystem = OverlayFileSystem(base)
    for change in (
        lambda: filesystem.create(tmp_path / "new", 1, allocate=False),
        lambda: filesystem.unlink(tmp_path / "outside"),
        lambda: filesystem.rename(tmp_path / "outside", base / "inside"),
        lambda: filesystem.make_directory(tmp_path / "directory"),
    ):
        with pytest.raises(PermissionError, match="outside"):
            change()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "store"]


def scratch_directory(monkeypatch, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    return scratch


def test_new_files_leave_no_name_behind_however_the_process_ends(base, monkeypatch, tmp_path):
    scratch = scratch_directory(monkeypatch, tmp_path)
    child = os.fork()
    if child == 0:
        filesystem = OverlayFileSystem(base)
        change_everything(filesystem, base)
        os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert list(scratch.iterdir()) == []


def test_the_bytes_of_new_files_go_with_the_view(base, monkeypatch, tmp_path):
    scratch = scratch_directory(monkeypatch, tmp_path)
    filesystem = OverlayFileSystem(base)
    filesystem.create(base / "new", 100, allocate=True).map(writable=True).array[:] = 7
    assert len(descriptors_below(scratch)) == 1
    assert filesystem.read_bytes(base / "new") == b"\7" * 100
    del filesystem
    gc.collect()
    assert descriptors_below(scratch) == []


def test_new_files_lie_beside_each_other_and_not_in_each_other(base):
    filesystem = OverlayFileSystem(base)
    sizes = (1, 4096, 0, 4097, 100)
    files = [
        filesystem.create(base / f"n{number}", size, allocate=bool(number % 2))
        for number, size in enumerate(sizes)
    ]
    for number, file in enumerate(files):
        file.map(writable=True).array[:] = number + 1
        file.pwrite(b"end", file.size)
    for number, size in enumerate(sizes):
        assert filesystem.read_bytes(base / f"n{number}") == bytes([number + 1]) * size + b"end"


def apply(filesystem, root, operation, name, other, number):
    """Do one operation; return the type of its error."""
    path, target = root / name, root / other

    def opened():
        return filesystem.open(path, writable=True)

    def store():
        array = opened().map(writable=True).array
        array[number % max(1, len(array)) : number + 3] = number % 251

    operations = {
        "create": lambda: filesystem.create(path, number, allocate=bool(number % 2)),
        "pwrite": lambda: opened().pwrite(bytes([number % 255]) * 9, number),
        "map": store,
        "extend": lambda: opened().extend(number),
        "zero": lambda: opened().zero(number, 50),
        "allocate": lambda: opened().allocate(number, 50),
        "rename": lambda: filesystem.rename(path, target),
        "write": lambda: filesystem.write_atomically(path, b"w" * number),
        "unlink": lambda: filesystem.unlink(path),
        "directory": lambda: filesystem.make_directory(root / "d"),
        "remove": lambda: filesystem.remove_directory(root / "d"),
    }
    try:
        operations[operation]()
    except OSError as error:
        return type(error)
    return None


OPERATIONS = [
    "create", "pwrite", "map", "extend", "zero", "allocate", "rename", "write", "unlink",
    "directory", "remove",
]  # fmt: skip


def listing(filesystem, root):
    return [
        (directory, entry)
        for directory in ("", "commitlog", "d")
        for entry in filesystem.list_directory(root / directory)
    ]


def test_it_behaves_like_a_file_system(base, tmp_path):
    """Random operations on the view and on a real copy give the same answers and the same files."""
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(base), str(copy)], check=True)
    before = snapshot(base)
    view, real = OverlayFileSystem(base), OsFileSystem()
    generator = random.Random(7)
    names = ["a", "b", "c", "topics.json", f"commitlog/{0:020d}", "d/e"]
    for _ in range(600):
        step = (
            generator.choice(OPERATIONS), generator.choice(names), generator.choice(names),
            generator.randrange(10_000),
        )  # fmt: skip
        assert apply(view, base, *step) == apply(real, copy, *step), step
        assert listing(view, base) == listing(real, copy), step
    compared = 0
    for name in names:
        assert view.exists(base / name) == real.exists(copy / name)
        if real.exists(copy / name):
            compared += 1
            assert view.read_bytes(base / name) == real.read_bytes(copy / name), name
    assert compared
    assert snapshot(base) == before


def test_holes_of_the_base_are_known_until_a_file_is_changed(tmp_path):
    (tmp_path / "store").mkdir()
    path = tmp_path / "store" / "units"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.write(b"unit")
    file = OverlayFileSystem(tmp_path / "store").open(path, writable=True)
    begin, end = file.next_data(0)
    assert begin == 0 and 0 < end < 1 << 20
    assert file.next_data(end) == (1 << 20, 1 << 20)
    file.pwrite(b"unit", 1 << 19)
    assert file.next_data(0) == (0, 1 << 20)
