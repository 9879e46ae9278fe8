"""The files of this machine, as the engine and all tools reach them.

A simulator of power cuts derives from ``FileSystem`` and takes its place. What a method leaves after a power
cut is part of its contract: nothing is durable before an explicit ``sync``, ``sync_all`` or
``sync_directory``, except where a method says so.

Errors: no space left (ENOSPC, EDQUOT, EFBIG) is ``StoreFull`` everywhere, and no descriptors or memory
left for opening or mapping (EMFILE, ENFILE, ENOMEM) ``StoreBusy``; the rest is ``OSError``.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from storage import modes
from storage.files import libc, only_files
from storage.files.protocol import (
    Buffer,
    ByteArray,
    DirectoryEntry,
    DiskSpace,
    FileStatus,
    Positions,
    ReadFile,
    ReadFileSystem,
)
from storage.files.ranges import joined
from storage.files.record_locks import RecordLock
from storage.files.system.os_errors import checking_room
from storage.files.system.os_file import PAGE_SIZE, File, Region

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "PAGE_SIZE",
    "Buffer",
    "ByteArray",
    "DirectoryEntry",
    "File",
    "FileStatus",
    "FileSystem",
    "Positions",
    "ReadFile",
    "ReadFileSystem",
    "Region",
]

GAP_MAX: Final = 16 << 10  # bytes between ranges; reading them costs less than a second read
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NOT_THERE: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP, errno.ENAMETOOLONG}
)


class FileSystem(ReadFileSystem):
    """Everything that the engine asks of a file system."""

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
        """Refuse, from here on, to reach what is below a directory by name once its path leads elsewhere.

        Then a call raises OSError (ESTALE). Files that are open or mapped stay so.
        """
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
    ) -> File:
        """Create a file of zeros, ``size`` long from the moment its name exists, for writing.

        ``head`` replaces its first bytes, and is there too when the name appears: a process killed
        meanwhile leaves no name of a file without it.

        With ``allocate`` its blocks are reserved, and file and name are durable on return. Without
        it the file is one hole and nothing is durable. Raises FileExistsError, StoreFull (and
        then leaves nothing).
        """
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

    def _opened(self, path: Path, descriptor: int) -> File:
        """Make a file of a descriptor: a file system with files of another kind has its own."""
        return File(path, descriptor)

    def _create_unnamed(self, path: Path, mode: int) -> File | None:
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

    def open(self, path: Path, *, writable: bool) -> File:
        """Open an existing file; FileNotFoundError if there is none."""
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
        """List a directory sorted by name; a missing directory is an empty one."""
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
        """Return of each directory below one its file, with up to ``length`` bytes; None without just one."""
        try:
            with self._opened_directory(directory) as descriptor, checking_room(directory):
                return only_files.below(descriptor, names, length)
        except FileNotFoundError:
            return [None] * len(names)

    def status(self, path: Path) -> FileStatus:
        """Return what changes with a file or directory; FileNotFoundError if there is none."""
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
        """Return a file as a read-only array in which at least some ranges may be read.

        The ranges go from each of ``begins`` to the one of ``ends``, to the end of the file without
        ``ends``; positions in the array are the file's own, and it is no shorter than the last range.
        What lies between the ranges may be zeros. Unmapped when the last view of it is gone. Raises
        FileNotFoundError.
        """
        file = self.open(path, writable=False)
        try:
            region = file.map(writable=False)
        finally:
            file.close()
        if isinstance(begins, np.ndarray) and ends is not None:
            region.advise(joined(begins, ends, GAP_MAX))
        return region.array

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory and its missing parents; durable on return, also if it exists.

        Without ``durable`` its name, and those of its parents, are the caller's to make durable.
        """
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
        """Remove an empty directory; not durable until its parent is synced."""
        with self._reaching(path):
            path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target in one step; not durable until the directory is synced."""
        with self._reaching(target):
            source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if it is taken. Not durable by itself."""
        with self._reaching(target):
            target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        """Remove a name; maps and open files stay good. Not durable by itself."""
        with self._reaching(path):
            path.unlink()

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        with self._opened_directory(path) as descriptor:
            os.fsync(descriptor)

    def sync_filesystem(self, path: Path) -> None:
        """Make all bytes and names durable of the file system that a directory is on.

        It takes as long as whatever anybody has written there; a ``sync`` of one file has to follow, as
        not every file system flushes the device's own cache for this.
        """
        with self._opened_directory(path) as descriptor:
            libc.sync_filesystem(descriptor)

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with every boot of the machine that caches the files."""
        return bytes.fromhex(_BOOT_ID.read_text().replace("-", "").strip())

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
        """Replace a small file; durable on return, and never absent or half written.

        ``mode`` is the new file's. With ``backup`` the version before stays as ``<name>.bak``. With ``copy``,
        an ending and what the file of that name is to hold, that file is replaced as well, before the others:
        both are written before either gets its name, so StoreFull leaves all as they were, and a power cut
        leaves each of them old or new. A copy that guards ``path`` against damage alone, and tells by itself
        whether it is whole, need not be durable: without ``syncs_copy`` a cut may leave it in parts.
        """
        made = [(path.with_name(path.name + copy[0]), copy[1])] if copy else []
        made.append((path, data))
        has_backup = backup and self.exists(path)
        try:
            for target, content in made:
                syncs = syncs_copy or target == path
                self._write_temporary(target, content, syncs=syncs, mode=mode)
            if has_backup:
                # A link, not a rename: at no moment is the file missing for a reader of it.
                spare = path.with_name(path.name + ".bak.tmp")
                with suppress(FileNotFoundError):
                    self.unlink(spare)
                self.link(path, spare)
        except BaseException:
            for target, _ in made:
                with suppress(OSError):
                    self.unlink(_temporary(target))
            raise
        if copy:
            self.rename(_temporary(made[0][0]), made[0][0])
        if has_backup:
            self.rename(path.with_name(path.name + ".bak.tmp"), path.with_name(path.name + ".bak"))
        self.rename(_temporary(path), path)
        self.sync_directory(path.parent)

    def _write_temporary(self, path: Path, data: bytes, *, syncs: bool, mode: int | None) -> None:
        temporary = _temporary(path)
        with suppress(FileNotFoundError):
            self.unlink(temporary)
        file = self.create(temporary, 0, allocate=False, mode=mode)
        try:
            file.pwrite(data, 0)
            if syncs:
                file.sync_all()
        finally:
            file.close()

    def lock(self, path: Path, position: int, content: bytes) -> RecordLock:
        """Take the lock on one byte of a file without waiting, creating it with ``content``.

        Raises StoreLocked when this or another process holds it.
        """
        with self._reaching(path):
            return RecordLock(path, position, content, alone=position == 0)


def _identity(directory: Path | str) -> tuple[int, int]:
    status = os.stat(directory)  # noqa: PTH116  looked at before every call
    return status.st_dev, status.st_ino


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")
