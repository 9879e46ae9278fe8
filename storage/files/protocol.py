"""What reading a store asks of a file system, of this machine's or of one behind a URL, and the values in it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

NS_PER_MS: Final = 1_000_000
SETTLED_NS: Final = 1_000_000_000  # the coarsest clock of a file system that is in use

ByteArray: TypeAlias = npt.NDArray[np.uint8]
Buffer: TypeAlias = bytes | bytearray | memoryview | ByteArray
Positions: TypeAlias = int | npt.NDArray[np.int64]


class DirectoryEntry(NamedTuple):
    """One name in a directory; ``size`` is 0 for a directory."""

    name: str
    is_directory: bool
    size: int


class FileStatus(NamedTuple):
    """What of a file or directory changes with it; compare it with what it was.

    ``modified_ns`` is Unix time, of a directory when a name in it last came or went. Two changes within
    a moment may leave the same: see ``has_settled``. ``inode`` is another where the name was replaced.
    """

    size: int
    modified_ns: int
    inode: int

    def has_settled(self, now_ms: int) -> bool:
        """Return whether the last change is long enough ago for another one to be seen by its time."""
        return now_ms * NS_PER_MS - self.modified_ns > SETTLED_NS


class DiskSpace(NamedTuple):
    """How much of a file system is used, and how much may be used yet, in bytes."""

    used_bytes: int
    usable_bytes: int

    @property
    def used_percent(self) -> int:
        """The share in use, rounded up, as a broker reckons it."""
        total = self.used_bytes + self.usable_bytes
        return -(-100 * self.used_bytes // total) if total else 0


class ReadFile(Protocol):
    """A file opened for reading. Methods may be called from several threads at once, but ``close``."""

    @property
    def path(self) -> Path:
        """Where it was opened."""
        ...

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        ...

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; shorter only at the end of the file."""
        ...

    def close(self) -> None:
        """Close the descriptor; maps stay."""
        ...


class ReadFileSystem(Protocol):
    """What reading a store asks of a file system: of this machine's, or of one behind a URL."""

    def open(self, path: Path, *, writable: bool) -> ReadFile:
        """Open an existing file; FileNotFoundError if there is none."""
        ...

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name."""
        ...

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory sorted by name; a missing directory is an empty one."""
        ...

    def status(self, path: Path) -> FileStatus:
        """Return what changes with a file or directory; FileNotFoundError if there is none."""
        ...

    def read_bytes(self, path: Path) -> bytes:
        """Return a whole small file; FileNotFoundError if there is none."""
        file = self.open(path, writable=False)
        try:
            return file.pread(file.size, 0)
        finally:
            file.close()

    def map_ranges(self, path: Path, begins: Positions, ends: Positions | None = None) -> ByteArray:
        """Return a file as a read-only array in which at least some ranges may be read.

        The ranges go from each of ``begins`` to the one of ``ends``, to the end of the file without
        ``ends``; positions in the array are the file's own, and it is no shorter than the last range.
        What lies between the ranges may be zeros. Unmapped when the last view of it is gone. Raises
        FileNotFoundError.
        """
        ...

    def boot_id(self) -> bytes:
        """Return 16 bytes that change with every boot of the machine that caches the files.

        Empty where that is another machine.
        """
        ...

    def location(self, path: Path) -> str:
        """Return what a message calls a path: the path itself, or its URL."""
        return str(path)
