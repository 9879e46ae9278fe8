"""The operating system's files; the contracts are in ``storage.files.protocol``."""

from __future__ import annotations

import errno
import os
import stat
import threading
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from storage import modes
from storage.files import libc, only_files, record_locks
from storage.files.disk_space import DiskSpace, disk_space
from storage.files.protocol import (
    Anchor,
    Buffer,
    ByteArray,
    DirectoryEntry,
    File,
    FileStatus,
    FileSystem,
    Lock,
    Positions,
    ReadFile,
    ReadFileSystem,
    Region,
)
from storage.files.ranges import joined
from storage.files.record_locks import RecordLock
from storage.files.system.anchors import AnchoredDirectories
from storage.files.system.os_errors import check_room, checking_room
from storage.files.system.os_file import PAGE_SIZE, OsFile, OsRegion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "PAGE_SIZE",
    "Anchor",
    "Buffer",
    "ByteArray",
    "DirectoryEntry",
    "File",
    "FileStatus",
    "FileSystem",
    "Lock",
    "OsFile",
    "OsFileSystem",
    "OsRegion",
    "Positions",
    "ReadFile",
    "ReadFileSystem",
    "Region",
]

GAP_MAX: Final = 16 << 10  # bytes between ranges; reading them costs less than a second read
_NOT_THERE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG}
)


class OsFileSystem(FileSystem):
    """The operating system's files."""

    def __init__(self, *, shared: bool | None = None) -> None:
        """``shared``: whether other users may open what it makes; None: as the process shares."""
        self._shared = shared
        self._durable: set[Path] = set()  # directories whose names it has synced
        self._anchored = AnchoredDirectories()
        self._held = _HeldOpen()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # another process opens for itself

    @property
    def _shares(self) -> bool:
        return modes.are_shared() if self._shared is None else self._shared

    def anchor(self, directory: Path) -> Anchor:
        """Follow a directory wherever it is renamed to."""
        with checking_room(directory):
            return self._anchored.hold(directory)

    def create(
        self, path: Path, size: int, *, allocate: bool, mode: int | None = None, head: Buffer = b""
    ) -> OsFile:
        """Create a file of zeros."""
        mode = modes.of_file(shared=self._shares) if mode is None else mode
        with checking_room(path):
            name, directory = self._anchored.place_of(path)
            file = self._create_unnamed(path, mode)
            named = file is None
            if file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                file = self._opened(path, os.open(name, flags, mode, dir_fd=directory))
            try:
                if allocate:
                    file.allocate(0, size)
                else:
                    file.extend(size)
                if len(head):
                    file.pwrite(head, 0)
                if allocate:
                    file.sync_all()
                if not named:
                    file.give_name(name, directory)
                if allocate:
                    self.sync_directory(path.parent)
            except BaseException as error:
                if not (isinstance(error, FileExistsError) and not named):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=directory)
                file.close()
                raise
            return file

    def _opened(self, path: Path, descriptor: int) -> OsFile:
        """Make a file of a descriptor: a file system with files of another kind has its own."""
        return OsFile(path, descriptor)

    def _create_unnamed(self, path: Path, mode: int) -> OsFile | None:
        """Open a file without a name, so that it gets its name at full length; None if it cannot.

        A broker that meets a commit log file of any other length refuses to start.
        """
        try:
            flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
            name, directory = self._anchored.place_of(path.parent)
            return self._opened(path, os.open(name, flags, mode, dir_fd=directory))
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                return None
            raise

    def open(self, path: Path, *, writable: bool) -> OsFile:
        """Open an existing file."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        name, directory = self._anchored.place_of(path)
        try:
            return self._opened(path, os.open(name, flags, dir_fd=directory))
        except OSError as error:
            check_room(error, path)
            raise

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name."""
        return self._found(path) is not None

    def _is_directory(self, path: Path) -> bool:
        status = self._found(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _found(self, path: Path) -> os.stat_result | None:
        name, directory = self._anchored.place_of(path)
        try:
            return os.stat(name, dir_fd=directory)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise
        except ValueError:  # a zero byte in the name
            return None

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory sorted by name."""
        entries = []
        try:
            with self._opened_directory(path) as descriptor, os.scandir(descriptor) as scan:
                for entry in scan:
                    # A name may go while we look at it: then it is not there.
                    with suppress(FileNotFoundError):
                        is_directory = entry.is_dir()
                        size = 0 if is_directory else entry.stat().st_size
                        entries.append(DirectoryEntry(entry.name, is_directory, size))
        except FileNotFoundError:
            return []
        return sorted(entries, key=attrgetter("name"))  # of many names in a tenth of the time

    def only_files(
        self, directory: Path, names: Sequence[str], length: int
    ) -> list[only_files.OnlyFile | None]:
        """Return the files of directories that have but one."""
        try:
            with self._opened_directory(directory) as descriptor, checking_room(directory):
                return only_files.below(descriptor, names, length)
        except FileNotFoundError:
            return [None] * len(names)

    def status(self, path: Path) -> FileStatus:
        """Return what changes with a file or directory."""
        name, at = self._anchored.place_of(path)
        about = os.stat(name, dir_fd=at)
        return FileStatus(about.st_size, about.st_mtime_ns, about.st_ino)

    def space(self, directory: Path) -> DiskSpace:
        """Return how full the file system is that a directory is on."""
        with self._opened_directory(directory) as descriptor:
            return disk_space(descriptor)

    @contextmanager
    def _opened_directory(self, path: Path) -> Iterator[int]:
        """Open a directory, or lend the descriptor by which this thread holds it open."""
        held = self._held.descriptors.get(path)
        if held is not None:
            yield held
            return
        name, at = self._anchored.place_of(path)
        with checking_room(path):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def map_ranges(self, path: Path, begins: Positions, ends: Positions | None = None) -> ByteArray:
        """Map a file; of many ranges only their pages are read from the disk, ahead of their use."""
        file = self.open(path, writable=False)
        try:
            region = file.map(writable=False)
        finally:
            file.close()
        if isinstance(begins, np.ndarray) and ends is not None:
            region.advise(joined(begins, ends, GAP_MAX))
        return region.array

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory and its missing parents."""
        if self._is_directory(path):
            if durable and path not in self._durable:
                # The process that made it may have been killed before its name was durable.
                with suppress(PermissionError):
                    self.sync_directory(path.parent)
                self._durable.add(path)
            return
        if path.parent != path:
            self.make_directory(path.parent, durable=durable)
        name, at = self._anchored.place_of(path)
        with checking_room(path):
            try:
                os.mkdir(name, modes.of_directory(shared=self._shares), dir_fd=at)
            except FileExistsError:
                if not self._is_directory(path):
                    raise
        self._durable.discard(path)
        if durable:
            self.sync_directory(path.parent)
            self._durable.add(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        name, at = self._anchored.place_of(path)
        with checking_room(path):
            os.rmdir(name, dir_fd=at)

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target in one step."""
        old, old_at = self._anchored.place_of(source)
        new, new_at = self._anchored.place_of(target)
        with checking_room(target):
            os.replace(old, new, src_dir_fd=old_at, dst_dir_fd=new_at)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        old, old_at = self._anchored.place_of(source)
        new, new_at = self._anchored.place_of(target)
        with checking_room(target):
            os.link(old, new, src_dir_fd=old_at, dst_dir_fd=new_at)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        name, at = self._anchored.place_of(path)
        with checking_room(path):
            os.unlink(name, dir_fd=at)

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self._opened_directory(path) as descriptor:
            os.fsync(descriptor)

    def write_atomically(
        self,
        path: Path,
        data: bytes,
        *,
        backup: bool = True,
        copy: tuple[str, bytes] | None = None,
        syncs_copy: bool = True,
        mode: int | None = None,
    ) -> None:
        """Replace a small file.

        Its directory is held open meanwhile: once the file is replaced, nothing can be refused for a
        lack of descriptors any more, and what is said of it is true.
        """
        with self._opened_directory(path.parent) as descriptor:
            self._held.descriptors[path.parent] = descriptor
            try:
                super().write_atomically(
                    path, data, backup=backup, copy=copy, syncs_copy=syncs_copy, mode=mode
                )
            finally:
                del self._held.descriptors[path.parent]

    def sync_filesystem(self, path: Path) -> None:
        """Make all bytes and names durable of the file system that a directory is on."""
        with self._opened_directory(path) as descriptor:
            libc.sync_filesystem(descriptor)

    def lock(self, path: Path, position: int, content: bytes) -> RecordLock:
        """Take the lock on one byte of a file; who has the first one has its directory alone."""
        place, alone = self._anchored.place_of(path), position == 0
        with checking_room(path):
            return RecordLock.acquire(path, position, content, place=place, alone=alone)

    def is_locked(self, path: Path, position: int) -> bool:
        """Return whether any process holds the lock on one byte of a file."""
        return record_locks.is_held(path, position, place=self._anchored.place_of(path))


class _HeldOpen(threading.local):
    """Directories that a thread holds open, each with its descriptor."""

    def __init__(self) -> None:
        self.descriptors: dict[Path, int] = {}
