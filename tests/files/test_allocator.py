"""Files ahead of need."""

from __future__ import annotations

import threading
import time

import pytest

from storage.errors import StoreBusy, StoreFull
from storage.files.allocator import MappedFileAllocator
from storage.files.filesystem import File, FileSystem
from storage.files.transient_store_pool import TransientStorePool

SIZE = 1 << 16


class CountingFileSystem(FileSystem):
    """Records when files were created and by which thread, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.created = threading.Condition()
        self.creators: dict[str, str] = {}
        self.full = False

    def create(self, path, size, *, allocate, mode=0o644):
        if self.full:
            raise StoreFull("injected")
        assert allocate
        file = super().create(path, size, allocate=allocate, mode=mode)
        with self.created:
            self.creators[path.name] = threading.current_thread().name
            self.created.notify_all()
        return file

    def wait_for(self, *offsets):
        with self.created:
            assert self.created.wait_for(
                lambda: all(f"{offset:020d}" in self.creators for offset in offsets), 30
            )


@pytest.fixture
def filesystem():
    return CountingFileSystem()


@pytest.fixture
def allocator(filesystem, tmp_path):
    allocator = MappedFileAllocator(
        filesystem, tmp_path / "log", file_size=SIZE, warm_ahead_bytes=SIZE
    )
    allocator.start()
    yield allocator
    allocator.close()


def test_the_next_two_files_are_created_before_they_are_asked_for(allocator, filesystem):
    allocator.take(0)
    filesystem.wait_for(SIZE, 2 * SIZE)
    mapped = allocator.take(SIZE)
    assert mapped.start_offset == SIZE
    assert filesystem.creators[f"{0:020d}"] == threading.current_thread().name
    assert filesystem.creators[f"{SIZE:020d}"] == "penstock-allocate"
    filesystem.wait_for(3 * SIZE)


def test_no_file_is_made_behind_one_that_could_not_be(allocator, filesystem, tmp_path):
    """A reader that lists the directory then would take the one between them for lost."""
    create = filesystem.create
    tried = threading.Event()

    def failing(path, size, **options):
        if path.name == f"{SIZE:020d}" and not tried.is_set():
            tried.set()
            raise StoreFull("injected")
        return create(path, size, **options)

    filesystem.create = failing
    allocator.take(0)
    assert tried.wait(30)
    allocator.maker.wait_for(lambda: allocator._creating is None and not allocator._wanted, 30)
    assert list(filesystem.creators) == [f"{0:020d}"]
    assert allocator.take(SIZE).start_offset == SIZE
    filesystem.wait_for(2 * SIZE)
    assert list(filesystem.creators)[:3] == [f"{n * SIZE:020d}" for n in range(3)]


def test_no_free_buffer_is_busy_and_the_file_is_kept_for_the_retry(filesystem, tmp_path):
    pool_files = FileSystem()
    (tmp_path / "pool").mkdir()
    pool = TransientStorePool(
        pool_files,
        tmp_path / "pool",
        store_id=b"s" * 16,
        boot_id=b"b" * 16,
        file_size=SIZE,
        buffer_count=1,
    )
    allocator = MappedFileAllocator(filesystem, tmp_path / "log", file_size=SIZE, pool=pool)
    first = allocator.take(0)
    assert first._buffer is not None
    for _ in range(2):
        with pytest.raises(StoreBusy) as raised:
            allocator.take(SIZE)
        assert raised.value.retry_delay_ms > 0
    first.mark_appended(SIZE)
    first.commit()
    assert allocator.take(SIZE)._buffer is not None
    assert sorted(filesystem.creators) == [f"{0:020d}", f"{SIZE:020d}"]
    allocator.close()


@pytest.fixture
def asked(filesystem, tmp_path):
    """What appends on an event loop take files from."""
    allocator = MappedFileAllocator(filesystem, tmp_path / "log", file_size=SIZE, waits=False)
    allocator.start()
    yield allocator
    allocator.close()


def take_in_the_end(allocator, start_offset):
    until = time.monotonic() + 30
    while True:
        try:
            return allocator.take(start_offset)
        except (StoreBusy, StoreFull):
            assert time.monotonic() < until
            time.sleep(0.001)


def test_on_an_event_loop_a_file_is_refused_while_it_is_made(asked, filesystem, monkeypatch):
    go_on = threading.Event()
    create = MappedFileAllocator._create

    def slow(allocator, start_offset):
        assert threading.current_thread().name == "penstock-allocate"
        assert go_on.wait(30)
        return create(allocator, start_offset)

    monkeypatch.setattr(MappedFileAllocator, "_create", slow)
    for _ in range(3):
        with pytest.raises(StoreBusy) as busy:
            asked.take(0)
        assert busy.value.retry_delay_ms > 0
    go_on.set()
    assert take_in_the_end(asked, 0).start_offset == 0
    assert take_in_the_end(asked, SIZE).start_offset == SIZE


def test_on_an_event_loop_a_full_disk_is_reported_until_there_is_room(asked, filesystem):
    filesystem.full = True
    with pytest.raises(StoreBusy):
        asked.take(0)
    until = time.monotonic() + 30
    full = 0
    while full < 5:
        assert time.monotonic() < until
        try:
            asked.take(0)
        except StoreFull:
            full += 1
        except StoreBusy:
            assert not full, "once it is known to be full nobody is told to wait for a file"
    filesystem.full = False
    assert take_in_the_end(asked, 0).size == SIZE


def test_a_file_that_could_not_be_mapped_can_be_had_later(allocator, filesystem, monkeypatch):
    """Too many descriptors, say: the file that was made for it is gone again."""
    allocator.close()
    with monkeypatch.context() as patch:
        patch.setattr(File, "map", lambda *_, **__: (_ for _ in ()).throw(OSError(24, "EMFILE")))
        with pytest.raises(OSError, match="EMFILE"):
            allocator.take(0)
    assert allocator.take(0).start_offset == 0
