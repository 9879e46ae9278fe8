"""The operating system's files; the contracts are in ``storage.files.protocol``."""

from __future__ import annotations

import errno
import mmap
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.errors import StoreFull
from storage.files import libc
from storage.files.protocol import (
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
from storage.files.ranges import Range, joined
from storage.files.record_locks import RecordLock
from storage.files.uncached import read_uncached

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

PAGE_SIZE: Final = mmap.PAGESIZE
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ZEROS: Final = bytes(1 << 20)
GAP_MAX: Final = 16 << 10  # bytes between ranges; reading them costs less than a second read
_FEW_BYTES: Final = 4_096  # written while holding the GIL


@contextmanager
def _full_is_store_full(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StoreFull(f"no space left for {path}: {error.strerror}") from error
        raise


class OsRegion:
    """A map of an operating-system file."""

    def __init__(self, descriptor: int, size: int, flags: int, protection: int) -> None:
        self._memory: mmap.mmap | None = None
        if size == 0:
            array = np.empty(0, np.uint8)
        else:
            self._memory = mmap.mmap(descriptor, size, flags=flags, prot=protection)
            array = np.frombuffer(self._memory, np.uint8)
        self._array: ByteArray | None = array

    @property
    def array(self) -> ByteArray:
        """The file's bytes."""
        if self._array is None:
            raise ValueError("the map was closed")
        return self._array

    def populate(self, begin: int, end: int) -> None:
        """Fault pages in for writing."""
        array = self.array
        begin = begin // PAGE_SIZE * PAGE_SIZE
        end = min(end, len(array))
        if begin < end:
            libc.populate_for_write(array.ctypes.data + begin, end - begin)

    def advise(self, ranges: Sequence[Range]) -> None:
        """Tell the kernel which ranges will be read, and that their neighbours will not."""
        if self._memory is None:
            return
        size = len(self._memory)
        self._memory.madvise(mmap.MADV_RANDOM)
        for begin, end in ranges:
            first = begin - begin % PAGE_SIZE
            if first < size:
                self._memory.madvise(mmap.MADV_WILLNEED, first, min(end, size) - first)

    def close(self) -> None:
        """Let go of the array."""
        self._array = None
        self._memory = None


class OsFile:
    """An open file of the operating system; closed with its last reference at the latest."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self._path

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        return os.fstat(self._descriptor).st_size

    def map(self, *, writable: bool) -> OsRegion:
        """Map the length it has now."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return OsRegion(self._descriptor, self.size, mmap.MAP_SHARED, protection)

    def map_private(self) -> OsRegion:
        """Map it so that stores stay in this process and never reach the file."""
        flags = mmap.MAP_PRIVATE | libc.MAP_NORESERVE
        return OsRegion(self._descriptor, self.size, flags, mmap.PROT_READ | mmap.PROT_WRITE)

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes."""
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length and (
            data := os.pread(self._descriptor, length - done, position + done)
        ):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_uncached(self, into: ByteArray, position: int) -> int:
        """Fill an array from a position, leaving the page cache as it is."""
        return read_uncached(self._descriptor, into, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        if (
            0 < len(view) <= _FEW_BYTES
            and not view.readonly
            and libc.pwrite_few(self._descriptor, view, position)
        ):
            return
        try:
            written = os.pwrite(self._descriptor, view, position)
            while written < len(view):
                written += os.pwrite(self._descriptor, view[written:], position + written)
        except OSError:
            with _full_is_store_full(self._path):
                raise

    def allocate(self, position: int, length: int) -> None:
        """Reserve blocks for a range."""
        if length <= 0:
            return
        with _full_is_store_full(self._path):
            if libc.fallocate(self._descriptor, position, length):
                return
        # Where fallocate is not supported, blocks come from writing: back what is there with
        # itself and what is not with zeros, never by one byte a block as glibc would.
        for start in range(position, position + length, len(_ZEROS)):
            count = min(len(_ZEROS), position + length - start)
            present = self.pread(count, start)
            self.pwrite(present + _ZEROS[: count - len(present)], start)

    def extend(self, size: int) -> None:
        """Make the file ``size`` long with a hole at the end."""
        if size > self.size:
            with _full_is_store_full(self._path):
                os.ftruncate(self._descriptor, size)

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros."""
        length = min(length, self.size - position)
        if length <= 0 or libc.punch_hole(self._descriptor, position, length):
            return
        for start in range(position, position + length, len(_ZEROS)):
            self.pwrite(_ZEROS[: min(len(_ZEROS), position + length - start)], start)

    def fill_cache(self, begin: int, end: int) -> bool:
        """Bring a range into the page cache through a map that is dropped again."""
        begin = begin // PAGE_SIZE * PAGE_SIZE
        try:
            memory = mmap.mmap(
                self._descriptor, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin
            )
        except (OSError, ValueError):  # no descriptor or address space left; past the end
            return False
        with memory:
            address = np.frombuffer(memory, np.uint8).ctypes.data
            return libc.populate_for_read(address, end - begin)

    def sync(self) -> None:
        """Make the bytes durable."""
        os.fdatasync(self._descriptor)

    def sync_all(self) -> None:
        """Make the bytes and all metadata durable."""
        os.fsync(self._descriptor)

    def known_as(self, path: Path) -> OsFile:
        """Make ``path`` what it calls itself, for a view in which it lies elsewhere."""
        self._path = path
        return self

    def give_name(self) -> None:
        """Put a file that was opened without a name at its path. Raises FileExistsError."""
        # With a directory descriptor, which an absolute path ignores, Python calls linkat and
        # follows the link in /proc; without one it calls link, which does not.
        source = f"/proc/self/fd/{self._descriptor}"
        os.link(source, self._path, src_dir_fd=self._descriptor, follow_symlinks=True)

    def close(self) -> None:
        """Close the descriptor."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class OsFileSystem(FileSystem):
    """The operating system's files."""

    def __init__(self) -> None:
        self._durable: set[Path] = set()  # directories whose names it has synced

    def create(
        self, path: Path, size: int, *, allocate: bool, mode: int = 0o644, head: Buffer = b""
    ) -> OsFile:
        """Create a file of zeros."""
        with _full_is_store_full(path):
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
                    file.give_name()
                if allocate:
                    self.sync_directory(path.parent)
            except BaseException as error:
                if not (isinstance(error, FileExistsError) and not named):
                    path.unlink(missing_ok=True)
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
        return self._opened(path, os.open(path, flags))

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name."""
        try:
            return path.exists()
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory sorted by name."""
        entries = []
        try:
            with os.scandir(path) as scan:
                for entry in scan:
                    # A name may go while we look at it: then it is not there.
                    with suppress(FileNotFoundError):
                        is_directory = entry.is_dir()
                        size = 0 if is_directory else entry.stat().st_size
                        entries.append(DirectoryEntry(entry.name, is_directory, size))
        except FileNotFoundError:
            return []
        return sorted(entries)

    def status(self, path: Path) -> FileStatus:
        """Return what changes with a file or directory."""
        about = os.stat(path)  # noqa: PTH116  quicker than Path.stat, for whoever looks again and again
        return FileStatus(about.st_size, about.st_mtime_ns, about.st_ino)

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

    def make_directory(self, path: Path) -> None:
        """Create a directory and its missing parents."""
        if path.is_dir():
            if path not in self._durable:
                # The process that made it may have been killed before its name was durable.
                with suppress(PermissionError):
                    self.sync_directory(path.parent)
                self._durable.add(path)
            return
        if path.parent != path:
            self.make_directory(path.parent)
        with _full_is_store_full(path):
            path.mkdir(exist_ok=True)
        self.sync_directory(path.parent)
        self._durable.add(path)

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target in one step."""
        with _full_is_store_full(target):
            source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name."""
        with _full_is_store_full(target):
            target.hardlink_to(source)

    def unlink(self, path: Path) -> None:
        """Remove a name."""
        path.unlink()

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: Path, position: int, content: bytes) -> RecordLock:
        """Take the lock on one byte of a file."""
        return RecordLock.acquire(path, position, content)
