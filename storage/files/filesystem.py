"""The operating system's files; the contracts are in ``storage.files.protocol``."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from storage import modes
from storage.files import libc, only_files
from storage.files.protocol import (
    Buffer,
    ByteArray,
    DirectoryEntry,
    DiskSpace,
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
from storage.files.system.os_errors import checking_room
from storage.files.system.os_file import PAGE_SIZE, OsFile, OsRegion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "PAGE_SIZE",
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
        self._roots: dict[str, tuple[int, int]] = {}  # of stores: path and identity

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # another process opens for itself

    @property
    def _shares(self) -> bool:
        return modes.are_shared() if self._shared is None else self._shared

    def hold(self, directory: Path) -> None:
        """Refuse, from here on, to reach what is below a directory by name once its path leads elsewhere."""
        with checking_room(directory):
            self._roots = {**self._roots, os.path.join(directory, ""): _identity(directory)}  # noqa: PTH118

    @contextmanager
    def _reaching(self, path: Path) -> Iterator[None]:
        """Have errors mean what they mean to a store.

        A store that went on by its path after its directory had been renamed would make its next files in another
        directory of that name. Raises OSError (ESTALE) instead.
        """
        text = os.path.join(path, "")  # noqa: PTH118  with the slash at the end
        for root, identity in self._roots.items():
            if text.startswith(root):
                with suppress(FileNotFoundError, NotADirectoryError):
                    if _identity(root) == identity:
                        continue
                problem = "the store's directory was renamed or removed while it was open"
                raise OSError(errno.ESTALE, problem, root)
        with checking_room(path):
            yield

    def create(
        self, path: Path, size: int, *, allocate: bool, mode: int | None = None, head: Buffer = b""
    ) -> OsFile:
        """Create a file of zeros."""
        mode = modes.of_file(shared=self._shares) if mode is None else mode
        with self._reaching(path):
            file = self._create_unnamed(path, mode)
            named = file is None
            if file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                file = self._opened(path, os.open(path, flags, mode))
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
                    file.give_name(path)
                if allocate:
                    self.sync_directory(path.parent)
            except BaseException as error:
                if not (isinstance(error, FileExistsError) and not named):
                    with suppress(FileNotFoundError):
                        path.unlink()
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
            return self._opened(path, os.open(path.parent, flags, mode))
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                return None
            raise

    def open(self, path: Path, *, writable: bool) -> OsFile:
        """Open an existing file."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        with self._reaching(path):
            return self._opened(path, os.open(path, flags))

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name."""
        return self._found(path) is not None

    def _is_directory(self, path: Path) -> bool:
        status = self._found(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def _found(self, path: Path) -> os.stat_result | None:
        try:
            return path.stat()
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
        with self._reaching(path):
            about = path.stat()
        return FileStatus(about.st_size, about.st_mtime_ns, about.st_ino)

    def space(self, directory: Path) -> DiskSpace:
        """Return how full the file system is that a directory is on."""
        with self._opened_directory(directory) as descriptor:
            found = os.fstatvfs(descriptor)
        used_blocks = found.f_blocks - found.f_bfree
        return DiskSpace(used_blocks * found.f_frsize, found.f_bavail * found.f_frsize)

    @contextmanager
    def _opened_directory(self, path: Path) -> Iterator[int]:
        """Open a directory for as long as it is used."""
        with self._reaching(path):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
        with self._reaching(path):
            if path.parent != path:
                self.make_directory(path.parent, durable=durable)
            try:
                path.mkdir(modes.of_directory(shared=self._shares))
            except FileExistsError:
                if not self._is_directory(path):
                    raise
        self._durable.discard(path)
        if durable:
            self.sync_directory(path.parent)
            self._durable.add(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        with self._reaching(path):
            path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target in one step."""
        with self._reaching(target):
            source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        with self._reaching(target):
            target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        with self._reaching(path):
            path.unlink()

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self._opened_directory(path) as descriptor:
            os.fsync(descriptor)

    def sync_filesystem(self, path: Path) -> None:
        """Make all bytes and names durable of the file system that a directory is on."""
        with self._opened_directory(path) as descriptor:
            libc.sync_filesystem(descriptor)

    def lock(self, path: Path, position: int, content: bytes) -> RecordLock:
        """Take the lock on one byte of a file; who has the first one has its directory alone."""
        with self._reaching(path):
            return RecordLock(path, position, content, alone=position == 0)


def _identity(directory: Path | str) -> tuple[int, int]:
    status = os.stat(directory)  # noqa: PTH116  looked at before every call
    return status.st_dev, status.st_ino
