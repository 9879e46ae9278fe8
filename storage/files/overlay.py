"""A copy-on-write view of a directory, so that recovery can run where nothing may change.

Below the base directory everything reads as it is there, and every change stays in this process: stores
go to private maps, new and lengthened files to a scratch file without a name, renames and removals are
only remembered. The base needs read permission alone. Outside the base directory, changes are refused.

The base may be a store that is running. Which names a directory of it has is decided when it is first
looked at: a file that the running store makes later is not part of the view, or a file that recovery
found missing and makes again would be there already.
"""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from storage.files.disk_space import DiskSpace
from storage.files.filesystem import (
    Buffer,
    ByteArray,
    DirectoryEntry,
    FileStatus,
    FileSystem,
    OsFileSystem,
)
from storage.files.private_copies import PrivateCopy, Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class OverlayFile:
    """An open file of the view."""

    def __init__(self, path: Path, content: PrivateCopy, keep: Callable[[], None] | None) -> None:
        self._path = path
        self._content = content
        self._keep = keep

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self._path

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        return self._content.size

    @property
    def is_removed(self) -> bool:
        """Whether it has no name any more: nobody asks of a view."""
        return False

    def map(self, *, writable: bool) -> OverlayRegion:
        """Map the length it has now."""
        if writable:
            self._before_change()
        return OverlayRegion(self._content, writable=writable)

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes."""
        return self._content.pread(length, position)

    def read_uncached(self, into: ByteArray, position: int) -> int:
        """Fill an array from a position, as the view has it."""
        data = self._content.pread(len(into), position)
        into[: len(data)] = np.frombuffer(data, np.uint8)
        return len(data)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, in this process alone."""
        self._before_change()
        self._content.pwrite(data, position)

    def allocate(self, position: int, length: int) -> None:
        """Lengthen the file; there is nothing to reserve."""
        self._before_change()
        self._content.extend(position + length)

    def extend(self, size: int) -> None:
        """Lengthen the file."""
        self._before_change()
        self._content.extend(size)

    def next_data(self, position: int) -> tuple[int, int]:
        """Return begin and end of the next range that is not a hole of the base; all that follows in a changed file."""
        return self._content.next_data(position)

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros."""
        self._before_change()
        self._content.region().array[position : position + length] = 0

    def fill_cache(self, begin: int, end: int) -> bool:  # noqa: ARG002
        """Do nothing: a view is read once."""
        return False

    def sync(self) -> None:
        """Do nothing: the view is never durable."""

    def sync_all(self) -> None:
        """Do nothing: the view is never durable."""

    def close(self) -> None:
        """Do nothing: the view keeps what it has read."""

    def _before_change(self) -> None:
        if self._keep is None:
            raise PermissionError(f"{self._path} was opened for reading")
        self._keep()


class OverlayRegion:
    """A map of a file of the view."""

    def __init__(self, content: PrivateCopy, *, writable: bool) -> None:
        self._content = content
        view = content.region().array[:]
        view.flags.writeable = writable
        self._array: ByteArray | None = view

    @property
    def array(self) -> ByteArray:
        """The file's bytes as this process sees them."""
        if self._array is None:
            raise ValueError("the map was closed")
        return self._array

    def populate(self, begin: int, end: int) -> None:
        """Do nothing: warming would copy what is not changed."""

    def can_read(self, begin: int, end: int) -> bool:  # noqa: ARG002
        """Return True."""
        return True

    def close(self) -> None:
        """Let go of the array."""
        self._array = None


class OverlayLock:
    """A lock that no other process sees."""

    def release(self) -> None:
        """Do nothing."""


class OverlayFileSystem(FileSystem):
    """A directory as it is, with changes that no other process sees. Safe to use from several threads."""

    def __init__(self, base_directory: Path) -> None:
        self._base_directory = _absolute(base_directory)
        self._base = OsFileSystem()
        self._scratch = Scratch()
        self._guard = threading.RLock()
        # What differs from the base: None for a removed file. Unchanged files of the base are kept
        # only while somebody has them open.
        self._changed: dict[Path, PrivateCopy | None] = {}
        self._unchanged: WeakValueDictionary[Path, PrivateCopy] = WeakValueDictionary()
        self._directories: dict[Path, bool] = {}  # False: removed
        self._listed: dict[Path, dict[str, DirectoryEntry]] = {}

    def create(
        self, path: Path, size: int, *, allocate: bool, mode: int | None = None, head: Buffer = b""
    ) -> OverlayFile:
        """Create a file of zeros in the scratch."""
        del mode
        path = self._inside(path)
        with self._guard:
            if self.exists(path):
                raise FileExistsError(f"{path} exists")
            if not self._is_directory(path.parent):
                raise FileNotFoundError(f"{path.parent} does not exist")
            content = PrivateCopy(self._scratch.create(size, allocate=allocate), self._scratch)
            content.pwrite(head, 0)
            self._changed[path] = content
            return OverlayFile(path, content, functools.partial(self._keep, path, content))

    def open(self, path: Path, *, writable: bool) -> OverlayFile:
        """Open an existing file; base files only for reading, whatever was asked."""
        path = _absolute(path)
        with self._guard:
            content = self._content(path)
            keep = functools.partial(self._keep, path, content) if writable else None
            return OverlayFile(path, content, keep)

    def _content(self, path: Path) -> PrivateCopy:
        content = self._changed[path] if path in self._changed else self._unchanged.get(path)
        if path in self._changed and content is None:
            raise FileNotFoundError(f"{path} was removed")
        if content is None:
            content = PrivateCopy(self._base.open(path, writable=False), self._scratch)
            self._unchanged[path] = content
        return content

    def _keep(self, path: Path, content: PrivateCopy) -> None:
        """Hold on to a file of the base that is about to change."""
        with self._guard:
            if self._unchanged.get(path) is content:
                del self._unchanged[path]
                self._changed[path] = content

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name in the view."""
        path = _absolute(path)
        with self._guard:
            if path in self._changed:
                return self._changed[path] is not None
            if path in self._directories:
                return self._directories[path]
            if not self._is_below_base(path):
                return self._base.exists(path)
            return path.name in self._entries_of_base(path.parent)

    def _is_below_base(self, path: Path) -> bool:
        return self._base_directory in path.parents

    def _is_directory(self, path: Path) -> bool:
        return self._directories.get(path, self._is_directory_of_base(path))

    def _is_directory_of_base(self, path: Path) -> bool:
        if not self._is_below_base(path):
            return path.is_dir()
        entry = self._entries_of_base(path.parent).get(path.name)
        return entry is not None and entry.is_directory

    def _entries_of_base(self, directory: Path) -> dict[str, DirectoryEntry]:
        if not self._is_directory_of_base(directory):
            return {}
        if directory not in self._listed:
            listed = self._base.list_directory(directory)
            self._listed[directory] = {entry.name: entry for entry in listed}
        return self._listed[directory]

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory of the view sorted by name."""
        path = _absolute(path)
        with self._guard:
            if not self._directories.get(path, True):
                return []
            entries = dict(self._entries_of_base(path))
            for name, entry in self._changes_in(path):
                if entry is None:
                    entries.pop(name, None)
                else:
                    entries[name] = entry
            return sorted(entries.values())

    def status(self, path: Path) -> FileStatus:
        """Return the size, and of what is as in the base all that changes there."""
        path = _absolute(path)
        with self._guard:
            if not self.exists(path):
                raise FileNotFoundError(f"{path} does not exist")
            content = self._changed.get(path)
            if content is not None or path in self._directories:
                return FileStatus(0 if content is None else content.size, 0, 0)
            return self._base.status(path)

    def _changes_in(self, directory: Path) -> Iterator[tuple[str, DirectoryEntry | None]]:
        for path, content in self._changed.items():
            if path.parent != directory:
                continue
            if content is None:
                yield path.name, None
            else:
                yield path.name, DirectoryEntry(path.name, False, content.size)
        for path, present in self._directories.items():
            if path.parent == directory:
                yield path.name, DirectoryEntry(path.name, True, 0) if present else None

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory in the view."""
        del durable
        path = _absolute(path)
        with self._guard:
            if self._is_directory(path):
                return
            self._inside(path)
            self.make_directory(path.parent)
            self._directories[path] = True

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory from the view."""
        path = self._inside(path)
        with self._guard:
            if self.list_directory(path):
                raise OSError(f"{path} is not empty")
            self._directories[path] = False

    def rename(self, source: Path, target: Path) -> None:
        """Rename a file in the view, replacing the target."""
        source, target = self._inside(source), self._inside(target)
        with self._guard:
            content = self._content(source)
            self._changed[source] = None
            self._changed[target] = content

    def link(self, source: Path, target: Path) -> None:
        """Give a file of the view a second name."""
        source, target = self._inside(source), self._inside(target)
        with self._guard:
            if self.exists(target):
                raise FileExistsError(f"{target} exists")
            self._changed[target] = self._content(source)

    def unlink(self, path: Path) -> None:
        """Remove a name from the view."""
        path = self._inside(path)
        with self._guard:
            if not self.exists(path):
                raise FileNotFoundError(f"{path} does not exist")
            self._changed[path] = None

    def sync_directory(self, path: Path) -> None:
        """Do nothing: the view is never durable."""

    def sync_filesystem(self, path: Path) -> None:
        """Do nothing: the view is never durable."""

    def space(self, directory: Path) -> DiskSpace:  # noqa: ARG002
        """Return an empty file system: what is changed here takes no space on a disk."""
        return DiskSpace(0, 0)

    def lock(self, path: Path, position: int, content: bytes) -> OverlayLock:
        """Grant the lock: no other process can be disturbed."""
        del path, position, content
        return OverlayLock()

    def _inside(self, path: Path) -> Path:
        path = _absolute(path)
        if not path.is_relative_to(self._base_directory):
            raise PermissionError(
                f"{path} is outside {self._base_directory}: nothing may change there"
            )
        return path


def _absolute(path: Path) -> Path:
    """Name a path in one way, without asking the file system about links."""
    return Path.cwd() / path
