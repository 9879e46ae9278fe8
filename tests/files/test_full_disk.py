"""A real full file system: errors, never signals, and writable again when space returns."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 4 MiB."""
    path = tmp_path / "disk"
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


def test_a_full_disk_is_an_error_and_never_a_signal(small_disk):
    """Fills the disk by every way there is to write; every page of every map must stay storable."""
    run(f"""
        from pathlib import Path
        from storage.errors import StoreFull
        from storage.files.filesystem import FileSystem
        from storage.files.mapped_file_queue import MappedFileQueue
        fs, d = FileSystem(), Path({str(small_disk)!r})
        sparse = fs.create(d / "units", 6_000_000, allocate=False)
        sparse.pwrite(bytes(1 << 20), 0)
        queue = MappedFileQueue(fs, d / "commitlog", file_size=1 << 20)
        full = 0
        for start in range(0, 8 << 20, 1 << 20):
            try:
                queue.create(start).array[:] = 1
            except StoreFull:
                full += 1
                break
        assert full
        names = [entry.name for entry in fs.list_directory(d / "commitlog")]
        assert all(entry.size == 1 << 20 for entry in fs.list_directory(d / "commitlog"))
        blob = bytes(1 << 16)
        try:
            for at in range(0, 6_000_000, len(blob)):
                sparse.pwrite(blob, at)
        except StoreFull:
            full += 1
        assert full == 2, full
        for name in names:
            fs.open(d / "commitlog" / name, writable=True).map(writable=True).array[:] = 2
        fs.unlink(d / "units"); sparse.close()
        queue.create(queue.end_offset).array[:] = 3
    """)


def test_the_allocator_says_full_and_works_again_when_space_returns(small_disk):
    """alibaba/rocketmq #331: a store that was full once never became writable again."""
    run(f"""
        from pathlib import Path
        from storage.errors import StoreFull
        from storage.files.allocator import MappedFileAllocator
        from storage.files.filesystem import FileSystem
        fs, d = FileSystem(), Path({str(small_disk)!r})
        filler = fs.create(d / "filler", 5 << 19, allocate=True)
        allocator = MappedFileAllocator(fs, d / "log", file_size=1 << 20, warm_ahead_bytes=1 << 18)
        allocator.start()
        allocator.take(0).array[:] = 1
        for _ in range(3):
            try: allocator.take(1 << 20)
            except StoreFull: pass
            else: raise SystemExit("not full")
        fs.unlink(d / "filler"); filler.close()
        allocator.take(1 << 20).array[:] = 2
        allocator.close()
    """)


def test_the_pool_frees_committed_memory_before_it_says_busy_or_full(small_disk):
    """A container's shared memory is far smaller than a log file."""
    run(f"""
        from pathlib import Path
        from storage.errors import StoreBusy, StoreFull
        from storage.files.filesystem import FileSystem
        from storage.files.mapped_file import MappedFile
        from storage.files.transient_store_pool import TransientStorePool
        fs, d = FileSystem(), Path({str(small_disk)!r})
        log = d.parent / "log"; log.mkdir()
        size = 32 << 20
        pool = TransientStorePool(fs, d, store_id=b"s" * 16, boot_id=b"b" * 16, file_size=size, buffer_count=1)
        mapped = MappedFile.create(fs, log / "0", size=size, start_offset=0)
        mapped.borrow(pool.borrow(0))
        step, position, busy = 100_000, 0, 0
        while position + step <= size:
            try:
                mapped.reserve(position + step)
            except StoreBusy:
                busy += 1
                assert mapped.commit() == position
                continue
            mapped.write_array[position : position + step] = position // step % 251
            position += step
            mapped.mark_appended(position)
        assert busy >= 8, busy
        mapped.commit()
        for at in range(0, position, step):
            assert (mapped.array[at : at + step] == at // step % 251).all()
    """)
