"""Locks on single bytes of a file, of the kind that a broker's Java takes and that stay held.

Java's are POSIX record locks, which the kernel ties to the process: it grants a second one to the same
process, and drops all of a file's when the process closes *any* descriptor of it, as a copy of the
directory does. Ours belong to one open file (``F_OFD_SETLK``), conflict with the POSIX kind in other
processes, and go with that file alone. Where the kernel has none, POSIX locks must do; so each locked
file is opened once here and a byte that this process holds is refused to it in either case.

A lock file that somebody removes is no lock any more: who comes next makes another. So who wants the
directory alone locks that as well, with ``flock``, which no broker minds.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from storage import modes
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from pathlib import Path

Place: TypeAlias = tuple[str, int | None]
"""A name, and the descriptor of the directory that it starts from if that is not this process's own."""
LEAVING_S: Final = (0.01, 0.04, 0.2)
_FLOCK: Final = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, length, pid


class _LockedFile:
    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.positions: set[int] = set()


_guard = threading.Lock()
_files: dict[tuple[int, int], _LockedFile] = {}
_directories: set[int] = set()  # descriptors of the locked ones


def _forget_in_child() -> None:
    """Close what a forked child inherited: its parent's lock must not outlive the parent in it."""
    for locked in _files.values():
        with suppress(OSError):
            os.close(locked.descriptor)
    for directory in _directories:
        with suppress(OSError):
            os.close(directory)
    _files.clear()
    _directories.clear()


os.register_at_fork(after_in_child=_forget_in_child)


class RecordLock:
    """An exclusive lock on one byte of a file, held until released or until the process ends."""

    def __init__(
        self, key: tuple[int, int], file: _LockedFile, position: int, directory: int | None
    ) -> None:
        self._key = key
        self._file = file
        self._position = position
        self._directory = directory
        self._is_held = True

    @classmethod
    def acquire(
        cls,
        path: Path,
        position: int,
        content: bytes,
        *,
        place: Place | None = None,
        alone: bool = False,
    ) -> RecordLock:
        """Lock byte ``position`` without waiting; write ``content`` into an empty file.

        ``alone``: and the file's directory, against others that do so. Raises StoreLocked when any
        process, this one included, holds the byte, or the directory.
        """
        with _guard:
            key, locked = _locked_file(*(place or (os.fspath(path), None)))
            try:
                if position in locked.positions:
                    raise StoreLocked(f"{path} byte {position} is locked by this process already")
                try:
                    _set_lock(locked.descriptor, fcntl.F_WRLCK, position)
                except (BlockingIOError, PermissionError) as error:
                    raise StoreLocked(
                        f"{path} byte {position} is locked by another process"
                    ) from error
            except BaseException:
                _close_if_unused(key, locked)
                raise
            locked.positions.add(position)
            try:
                if content and os.fstat(locked.descriptor).st_size == 0:
                    os.pwrite(locked.descriptor, content, 0)
                directory = _locked_directory(path, place) if alone else None
            except BaseException:
                _unlock(key, locked, position)
                raise
            return cls(key, locked, position, directory)

    def release(self) -> None:
        """Let go; doing it twice is harmless, also to who has the byte by then."""
        with _guard:
            if not self._is_held or _files.get(self._key) is not self._file:
                return  # the latter: a parent's, in its child
            self._is_held = False
            # First the directory: who finds the byte free finds the directory free.
            if self._directory is not None:
                _directories.discard(self._directory)
                os.close(self._directory)
            _unlock(self._key, self._file, self._position)


def is_held(path: Path, position: int, *, place: Place | None = None) -> bool:
    """Return whether any process, this one included, holds byte ``position`` of the file."""
    name, directory = place or (os.fspath(path), None)
    with _guard:
        try:
            status = os.stat(name, dir_fd=directory)
            locked = _files.get((status.st_dev, status.st_ino))
            if locked is not None:
                return position in locked.positions or _is_held(locked.descriptor, position)
            # Not in the registry: this process has no lock on it that closing could lose.
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            return False
        try:
            return _is_held(descriptor, position)
        finally:
            os.close(descriptor)


def _is_held(descriptor: int, position: int) -> bool:
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, position, 1, 0)
    found = fcntl.fcntl(descriptor, fcntl.F_GETLK, wanted)
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


def _set_lock(descriptor: int, kind: int, position: int) -> None:
    """Lock or unlock one byte without waiting. Raises BlockingIOError or PermissionError if held."""
    request = struct.pack(_FLOCK, kind, os.SEEK_SET, position, 1, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        fcntl.fcntl(descriptor, fcntl.F_SETLK, request)


def _locked_file(name: str, directory: int | None) -> tuple[tuple[int, int], _LockedFile]:
    """Return the registry's one descriptor of a file, opening it at first use."""
    try:
        status = os.stat(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    else:
        # Looked up by identity before opening: closing a second one would lose POSIX locks.
        key = (status.st_dev, status.st_ino)
        if key in _files:
            return key, _files[key]
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(name, flags, modes.of_file(shared=modes.are_shared()), dir_fd=directory)
    status = os.fstat(descriptor)
    key = (status.st_dev, status.st_ino)
    return key, _files.setdefault(key, _LockedFile(descriptor))


def _unlock(key: tuple[int, int], locked: _LockedFile, position: int) -> None:
    locked.positions.discard(position)
    _set_lock(locked.descriptor, fcntl.F_UNLCK, position)
    _close_if_unused(key, locked)


def _locked_directory(path: Path, place: Place | None) -> int | None:
    """Lock the directory of a file; return its descriptor, None where the file system has no such locks."""
    name, directory = place or (os.fspath(path), None)
    parent = os.path.dirname(name) or "."  # noqa: PTH120  relative to a descriptor
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    try:
        # Of a process that ends, or of a child of one, it goes a moment later.
        for rest_s in (*LEAVING_S, None):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if rest_s is None:
                    raise StoreLocked(f"who had locked {path} goes on without it") from error
                time.sleep(rest_s)
    except StoreLocked:
        os.close(descriptor)
        raise
    except OSError:
        os.close(descriptor)
        return None
    _directories.add(descriptor)
    return descriptor


def _close_if_unused(key: tuple[int, int], locked: _LockedFile) -> None:
    if not locked.positions:
        del _files[key]
        os.close(locked.descriptor)
