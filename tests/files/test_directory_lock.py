"""Locks: between processes, inside one, and with a broker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from storage.errors import StoreLocked
from storage.files.directory_lock import DirectoryLock, LockRole
from storage.files.filesystem import FileSystem

FILESYSTEM = FileSystem()


def python(program: str) -> str:
    """Run a program in another process and return what it printed."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return result.stdout.strip()


def attempt(directory, role: str) -> str:
    return python(f"""
        from pathlib import Path
        from storage.errors import StoreLocked
        from storage.files.directory_lock import DirectoryLock, LockRole
        from storage.files.filesystem import FileSystem
        try:
            DirectoryLock.acquire(FileSystem(), Path({str(directory)!r}), LockRole.{role})
            print("taken")
        except StoreLocked:
            print("locked")
    """)


def test_a_role_is_held_by_one_process_and_free_after_release(tmp_path):
    lock = DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER)
    lock.release()
    lock.release()
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        assert attempt(tmp_path, "WRITER") == "locked"
        assert attempt(tmp_path, "INDEXER") == "taken"
        assert attempt(tmp_path, "CONSUMER_OFFSETS") == "taken"
    assert attempt(tmp_path, "WRITER") == "taken"


def test_a_removed_lock_file_lets_no_second_writer_in(tmp_path):
    """Nor a repair: both take the writer's lock."""
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        (tmp_path / "lock").unlink()
        assert attempt(tmp_path, "WRITER") == "locked"
        with pytest.raises(StoreLocked, match="goes on without it"):
            DirectoryLock.acquire(FileSystem(), tmp_path, LockRole.WRITER)
        assert attempt(tmp_path, "INDEXER") == "taken"
    assert attempt(tmp_path, "WRITER") == "taken"


def test_one_process_cannot_hold_a_role_twice(tmp_path):
    """Two stores over one directory in one process."""
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        with pytest.raises(StoreLocked, match="a writer or a broker"):
            DirectoryLock.acquire(FileSystem(), tmp_path / ".", LockRole.WRITER)
        assert attempt(tmp_path, "WRITER") == "locked"


def test_releasing_one_role_keeps_the_others(tmp_path):
    """Closing any descriptor of the file would drop them all."""
    writer = DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER)
    indexer = DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.INDEXER)
    with pytest.raises(StoreLocked):
        DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.INDEXER)
    indexer.release()
    assert attempt(tmp_path, "WRITER") == "locked"
    assert attempt(tmp_path, "INDEXER") == "taken"
    writer.release()


def test_reading_the_lock_file_keeps_the_lock(tmp_path):
    """Copying a live store's directory must not let a second writer in, as with POSIX locks."""
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        assert (tmp_path / "lock").read_bytes() == b"lock"
        assert attempt(tmp_path, "WRITER") == "locked"


def test_a_lock_does_not_outlive_its_process_in_a_forked_child(tmp_path):
    """A killed writer's worker, still alive, must not keep the store locked."""
    child = int(
        python(f"""
        import os, signal, sys, time
        from pathlib import Path
        from storage.files.directory_lock import DirectoryLock, LockRole
        from storage.files.filesystem import FileSystem
        lock = DirectoryLock.acquire(FileSystem(), Path({str(tmp_path)!r}), LockRole.WRITER)
        child = os.fork()
        if child == 0:
            os.close(1)
            time.sleep(600)
            os._exit(0)
        print(child, flush=True)
        os._exit(0)
    """)
    )
    try:
        assert attempt(tmp_path, "WRITER") == "taken"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_running_broker_is_respected(tmp_path):
    """Java's FileChannel.tryLock(0, 1, false) is a POSIX record lock on byte 0."""
    program = textwrap.dedent(f"""
        import fcntl, os, sys
        fd = os.open({str(tmp_path / "lock")!r}, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        os.write(fd, b"lock"); print("held", flush=True); sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as broker:
        assert broker.stdout.readline() == b"held\n"
        with pytest.raises(StoreLocked, match="broker"):
            DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER)
        DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.INDEXER).release()
        broker.communicate()
    DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER).release()


def test_looking_whether_a_role_is_taken_takes_and_loses_nothing(tmp_path):
    """In this process and in another; a reader looks before it calls a writer gone."""
    look = f"""
        from pathlib import Path
        from storage.files.directory_lock import DirectoryLock, LockRole
        print(*[int(DirectoryLock.is_held(Path({str(tmp_path)!r}), role)) for role in LockRole])
    """
    assert not DirectoryLock.is_held(tmp_path, LockRole.WRITER)
    assert not list(tmp_path.iterdir())
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        assert DirectoryLock.is_held(tmp_path, LockRole.WRITER)
        assert not DirectoryLock.is_held(tmp_path, LockRole.INDEXER)
        assert python(look) == "1 0 0"
        assert attempt(tmp_path, "WRITER") == "locked"
    assert python(look) == "0 0 0"


def test_a_broker_finds_byte_0_taken_by_our_writer(tmp_path):
    with DirectoryLock.acquire(FILESYSTEM, tmp_path, LockRole.WRITER):
        assert (
            python(f"""
            import fcntl, os
            fd = os.open({str(tmp_path / "lock")!r}, os.O_RDWR)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                print("broker started")
            except OSError:
                print("already started")
        """)
            == "already started"
        )
