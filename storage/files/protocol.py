"""What the engine asks of a file system.

The engine reaches files only through ``FileSystem``, so that a simulator of power cuts can take its
place. What a method leaves after a power cut is part of its contract: nothing is durable before an
explicit ``sync``, ``sync_all`` or ``sync_directory``, except where a method says so.

Errors: no space left (ENOSPC, EDQUOT, EFBIG) is ``StoreFull`` everywhere, and no descriptors or memory
left for opening or mapping (EMFILE, ENFILE, ENOMEM) ``StoreBusy``; the rest is ``OSError``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from storage.files.only_files import OnlyFile

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
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


class Region(Protocol):
    """A whole file mapped into memory.

    The map lives for as long as ``array`` or any view of it lives, whatever happens to the file's
    name: a file that was unlinked stays readable. Nobody truncates a file that may be mapped, since
    touching pages past a file's end kills the process.
    """

    @property
    def array(self) -> ByteArray:
        """The file's bytes; stores to it are seen by every process at once, durable by no means."""
        ...

    def populate(self, begin: int, end: int) -> None:
        """Fault the pages of [begin, end) in for writing without changing them, GIL released.

        Safe beside stores to the same pages. Failing to warm is not an error.
        """
        ...

    def can_read(self, begin: int, end: int) -> bool:
        """Return whether [begin, end) can be touched; False where that would be a signal.

        What a file holds always can. A hole of a file cannot on a full file system in memory, such as tmpfs.
        """
        ...

    def close(self) -> None:
        """Let go of the array; the memory is unmapped when the last view of it is gone."""
        ...


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


class File(ReadFile, Protocol):
    """An open file. Every method but ``close`` may be called from several threads at once."""

    def map(self, *, writable: bool) -> Region:
        """Map the length it has now; the map outlives ``close``."""
        ...

    @property
    def is_removed(self) -> bool:
        """Whether it has no name any more, so that nobody who opens the store later sees it."""
        ...

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, extending the file; part may be written when it raises."""
        ...

    def allocate(self, position: int, length: int) -> None:
        """Reserve blocks for a range, extending the file, so that stores to it cannot run out.

        New bytes are zeros, old ones stay. Raises StoreFull.
        """
        ...

    def extend(self, size: int) -> None:
        """Make the file ``size`` long with a hole at the end; never shortens."""
        ...

    def next_data(self, position: int) -> tuple[int, int]:
        """Return begin and end of the first range that is not a hole, from ``position`` on.

        It is empty, at the file's size, if nothing is. Where the file system knows no holes all is one range.
        """
        ...

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros, freeing its blocks where that is possible."""
        ...

    def fill_cache(self, begin: int, end: int) -> bool:
        """Bring [begin, end) into the page cache, clean, GIL released; nothing of it stays mapped.

        False if it cannot be done, which is not an error.
        """
        ...

    def read_uncached(self, into: ByteArray, position: int) -> int:
        """Fill an array from a position, GIL released; return how many bytes there were.

        Of whole pages, into an array of ``aligned_array``, the device itself is read where the file system can do
        that, and the page cache stays as it was.
        """
        ...

    def sync(self) -> None:
        """Make the bytes, and a length they need, durable (``fdatasync``), GIL released.

        Covers stores to maps which happened before the call. After an OSError the bytes may be
        gone even if a later sync succeeds: never retry, never acknowledge.
        """
        ...

    def sync_all(self) -> None:
        """Make the bytes and all metadata durable (``fsync``)."""
        ...


class Lock(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Let go; doing it twice is harmless."""
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


class FileSystem(ReadFileSystem, Protocol):
    """Everything the engine asks of a file system."""

    def hold(self, directory: Path) -> None:
        """Refuse, from here on, to reach what is below a directory by name once its path leads elsewhere.

        Then a call raises OSError (ESTALE). Files that are open or mapped stay so.
        """

    def only_files(
        self, directory: Path, names: Sequence[str], length: int
    ) -> list[OnlyFile | None]:
        """Return of each directory below one its file, with up to ``length`` bytes; None without just one."""
        ...

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
        ...

    def open(self, path: Path, *, writable: bool) -> File:
        """Open an existing file; FileNotFoundError if there is none."""
        ...

    def make_directory(self, path: Path, *, durable: bool = True) -> None:
        """Create a directory and its missing parents; durable on return, also if it exists.

        Without ``durable`` its name, and those of its parents, are the caller's to make durable.
        """
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory; not durable until its parent is synced."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename, replacing the target in one step; not durable until the directory is synced."""
        ...

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if it is taken. Not durable by itself."""
        ...

    def unlink(self, path: Path) -> None:
        """Remove a name; maps and open files stay good. Not durable by itself."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in a directory durable."""
        ...

    def sync_filesystem(self, path: Path) -> None:
        """Make all bytes and names durable of the file system that a directory is on.

        It takes as long as whatever anybody has written there; a ``sync`` of one file has to follow, as
        not every file system flushes the device's own cache for this.
        """
        ...

    def space(self, directory: Path) -> DiskSpace:
        """Return how full the file system is that a directory is on."""
        ...

    def lock(self, path: Path, position: int, content: bytes) -> Lock:
        """Take the lock on one byte of a file without waiting, creating it with ``content``.

        Raises StoreLocked when this or another process holds it.
        """
        ...

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


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")
