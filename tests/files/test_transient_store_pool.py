"""The pool outlives kill -9, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from storage.files.filesystem import FileSystem
from storage.files.mapped_file import MappedFile
from storage.files.transient_store_pool import TransientStorePool

SIZE = 1 << 20
STORE, OTHER_STORE = b"store-id-of-this", b"store-id-of-that"
BOOT, OTHER_BOOT = b"this boot's own.", b"the next boot's."
FILESYSTEM = FileSystem()


def open_pool(directory, *, store_id=STORE, boot_id=BOOT, count=2):
    return TransientStorePool(
        FILESYSTEM,
        directory,
        store_id=store_id,
        boot_id=boot_id,
        file_size=SIZE,
        buffer_count=count,
    )


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "pool").mkdir()
    return tmp_path / "pool"


@pytest.fixture
def mapped(tmp_path):
    return MappedFile.create(FILESYSTEM, tmp_path / "log", size=SIZE, start_offset=3 * SIZE)


def append(mapped, data):
    position = mapped.appended_position
    mapped.reserve(position + len(data))
    mapped.write_array[position : position + len(data)] = list(data)
    mapped.mark_appended(position + len(data))


def test_readers_see_what_was_committed_and_no_more(directory, mapped):
    mapped.borrow(open_pool(directory).borrow(mapped.start_offset))
    append(mapped, b"first")
    assert not mapped.array.any()
    assert (mapped.committed_position, mapped.flush()) == (0, 0)
    assert mapped.commit() == 5
    append(mapped, b"second")
    assert mapped.array[:11].tobytes() == b"first" + bytes(6)
    assert mapped.flush() == 5
    assert mapped.commit() == 11
    assert mapped.array[:11].tobytes() == b"firstsecond"


def kill_a_writer(directory, log, then=""):
    """Append in another process and kill it; it appended 10 bytes and committed the first 4."""
    program = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from storage.files.filesystem import FileSystem
        from storage.files.mapped_file import MappedFile
        from storage.files.transient_store_pool import TransientStorePool
        fs = FileSystem()
        pool = TransientStorePool(fs, Path({str(directory)!r}), store_id={STORE!r}, boot_id={BOOT!r},
                                  file_size={SIZE}, buffer_count=2)
        mapped = MappedFile.open(fs, Path({str(log)!r}), start_offset={3 * SIZE})
        mapped.borrow(pool.borrow({3 * SIZE}))
        def append(data):
            position = mapped.appended_position
            mapped.reserve(position + len(data))
            mapped.write_array[position : position + len(data)] = list(data)
            mapped.mark_appended(position + len(data))
        append(b"comm"); mapped.commit(); append(b"acked!")
        mapped.write_array[10:20] = 255
        {then}
        os.kill(os.getpid(), signal.SIGKILL)
    """)
    result = subprocess.run([sys.executable, "-c", program], check=False)
    assert result.returncode == -signal.SIGKILL


def test_what_was_appended_survives_kill_9(directory, mapped):
    """Exactly what is whole and in no file: neither the committed bytes nor the torn ones."""
    kill_a_writer(directory, mapped.path)
    pool = open_pool(directory)
    (leftover,) = pool.leftover()
    assert leftover.commit_offset == 3 * SIZE + 4
    assert leftover.data.tobytes() == b"acked!"
    assert mapped.array[:10].tobytes() == b"comm" + bytes(6)
    assert [each.data.tobytes() for each in pool.leftover()] == [b"acked!"], "looking takes nothing"
    pool.discard_leftover()
    assert leftover.data.tobytes() == b"acked!"
    assert pool.leftover() == []
    assert list(directory.iterdir()) == []


def test_another_store_s_bytes_are_never_replayed_nor_removed(directory, mapped):
    kill_a_writer(directory, mapped.path)
    other = open_pool(directory, store_id=OTHER_STORE)
    assert other.leftover() == []
    other.discard_leftover()
    assert len(open_pool(directory).leftover()) == 1


def test_after_a_reboot_nothing_is_replayed_and_all_is_removed(directory, mapped):
    kill_a_writer(directory, mapped.path)
    for store_id in (STORE, OTHER_STORE):
        pool = open_pool(directory, store_id=store_id, boot_id=OTHER_BOOT)
        assert pool.leftover() == []
    pool.discard_leftover()
    assert list(directory.iterdir()) == []


def test_a_buffer_assigned_again_replays_nothing_of_the_file_before(directory, mapped):
    kill_a_writer(
        directory,
        mapped.path,
        then=f"mapped.mark_appended({SIZE}); mapped.commit(); mapped.borrow(pool.borrow({4 * SIZE}))",
    )
    assert open_pool(directory).leftover() == []


@pytest.mark.parametrize("stop_after", range(4))
def test_dying_at_any_step_of_an_assignment_replays_nothing(directory, mapped, stop_after):
    """The header changes in four stores; between them written never exceeds committed."""
    pool = open_pool(directory, count=1)
    buffer = pool.borrow(0)
    buffer.mark_appended(SIZE)
    buffer.mark_committed(SIZE)
    buffer.release()

    class Stop(Exception):
        pass

    steps = iter(range(10))

    def counted(store):
        class Words:
            def __getitem__(self, index):
                return store[index]

            def __setitem__(self, index, value):
                if next(steps) == stop_after:
                    raise Stop
                store[index] = value

        return Words()

    buffer._words, buffer._bytes = counted(buffer._words), counted(buffer._bytes)
    with pytest.raises(Stop):
        pool.borrow(SIZE, position=100)
    assert open_pool(directory).leftover() == []


def test_damaged_or_foreign_files_in_the_directory_are_ignored(directory, mapped):
    kill_a_writer(directory, mapped.path)
    (path,) = directory.iterdir()
    header = path.read_bytes()[:68]
    with path.open("r+b", buffering=0) as file:
        for bit in range(68 * 8):
            byte = bit // 8
            os.pwrite(file.fileno(), bytes([header[byte] ^ 1 << bit % 8]), byte)
            assert open_pool(directory).leftover() == [], bit
            os.pwrite(file.fileno(), header, 0)
    (directory / "penstock-short").write_bytes(b"x")
    (directory / "somebody-else").write_bytes(b"x")
    pool = open_pool(directory)
    assert len(pool.leftover()) == 1
    pool.discard_leftover()
    assert sorted(each.name for each in directory.iterdir()) == ["penstock-short", "somebody-else"]


def test_buffers_are_private_to_the_user(directory):
    """/dev/shm is open to everybody; the messages are not."""
    open_pool(directory).borrow(0)
    (path,) = directory.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
