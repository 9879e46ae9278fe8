"""Locks on single bytes of a file, of the kind that a broker's Java takes and that stay held.

Java's are POSIX record locks, which belong to a process: the kernel drops all of a file's when the process
closes *any* descriptor of it, as a copy of the directory does. Ours belong to one open file
(``F_OFD_SETLK``): they conflict with the POSIX kind in other processes and with one another in this one,
and go with that file alone.

A lock file that somebody removes is no lock any more: who comes next makes another. So who wants the
directory alone locks that as well, with ``flock``, which no broker minds.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage import modes
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from pathlib import Path

LEAVING_S: Final = (0.01, 0.04, 0.2)
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid

_held: set[RecordLock] = set()


def _forget_in_child() -> None:
    """Close what a forked child inherited: its parent's lock must not outlive the parent in it."""
    for lock in tuple(_held):
        lock.close()


os.register_at_fork(after_in_child=_forget_in_child)


class RecordLock:
    """An exclusive lock on one byte of a file, held until released or until the process ends."""

    def __init__(self, path: Path, position: int, content: bytes, *, alone: bool = False) -> None:
        """Lock byte ``position`` without waiting; write ``content`` into an empty file.

        ``alone``: and the file's directory, against others that do so. Raises StoreLocked when any
        process, this one included, holds the byte, or the directory.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(path, flags, modes.of_file(shared=modes.are_shared()))
        self._position = position
        self._descriptors = [descriptor]
        try:
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(position))
            except (BlockingIOError, PermissionError) as error:
                raise StoreLocked(f"{path} byte {position} is locked") from error
            if content and os.fstat(descriptor).st_size == 0:
                os.pwrite(descriptor, content, 0)
            if alone:
                self._lock_directory(path)
        except BaseException:
            self.close()
            raise
        _held.add(self)

    def _lock_directory(self, path: Path) -> None:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._descriptors.insert(0, directory)  # it is unlocked first
        # Of a process that ends, or of a child of one, it goes a moment later.
        for rest_s in (*LEAVING_S, None):
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError as error:
                if rest_s is None:
                    raise StoreLocked(f"who had locked {path} goes on without it") from error
                time.sleep(rest_s)
            except OSError:  # the file system has no such locks
                return

    def release(self) -> None:
        """Let go; doing it twice is harmless. Who finds the byte free then finds the directory free."""
        for descriptor in self._descriptors[:-1]:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        for descriptor in self._descriptors[-1:]:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _request(self._position, fcntl.F_UNLCK))
        self.close()

    def close(self) -> None:
        """Close the descriptors. The locks go with the last copy of each, which a forked child may have."""
        _held.discard(self)
        descriptors, self._descriptors = self._descriptors, []
        for descriptor in descriptors:
            with suppress(OSError):
                os.close(descriptor)


def is_held(path: Path, position: int) -> bool:
    """Return whether any process, this one included, holds byte ``position`` of the file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        found = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _request(position))
    finally:
        os.close(descriptor)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _request(position: int, kind: int = fcntl.F_WRLCK) -> bytes:
    return struct.pack(_FLOCK, kind, os.SEEK_SET, position, 1, 0)
