"""The files below one URL, read through fsspec: object stores, HDFS, whatever it knows.

Paths are absolute within the URL: ``/commitlog/00000000000000000000`` is a file of the store at it.
The files are a copy that does not change: everything below the URL is listed in one request, once.
Small reads go through blocks that are kept; of a mapped file only the wanted ranges are fetched.
fsspec is imported when the first file is looked at, so the package runs without it.
"""

from __future__ import annotations

import errno
import mmap
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from storage.errors import NotAStore, StoreChanged
from storage.files.protocol import ByteArray, DirectoryEntry, FileStatus, Positions, ReadFileSystem
from storage.files.ranges import Range, grouped, joined

BLOCK_SIZE: Final = 64 << 10
BLOCKS_OF_A_FILE: Final = 16
CACHED_FILES_MAX: Final = 64  # so 64 MiB of small reads for one store
FETCH_SIZE: Final = 8 << 20
FETCHES_AT_ONCE: Final = 4
GAP_MAX: Final = (
    256 << 10
)  # unwanted bytes between two ranges; fetching them costs less than a request
ROOT: Final = Path("/")


class UrlFile:
    """A file behind a URL, open for reading."""

    def __init__(self, filesystem: UrlFileSystem, path: Path) -> None:
        self.path = path
        self._filesystem = filesystem

    @property
    def size(self) -> int:
        """Its length in bytes, as it was listed."""
        return self._filesystem.size(self.path)

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes through the kept blocks."""
        return self._filesystem.read_at(self.path, position, length)

    def close(self) -> None:
        """Do nothing: it holds no descriptor."""


class UrlFileSystem(ReadFileSystem):
    """Reads the files below ``url``; ``options`` go to fsspec and are in no text of it.

    Pickled with its options and nothing that was read. Safe to use from several threads.
    """

    def __init__(self, url: str, options: Mapping[str, Any] | None = None) -> None:
        self.url = url.rstrip("/")
        self._options = dict(options or {})
        self._guard = threading.Lock()
        self._opened: tuple[Any, str] | None = None
        self._listing: dict[Path, dict[str, DirectoryEntry]] | None = None
        self._blocks: OrderedDict[Path, Any] = OrderedDict()

    def __reduce__(self) -> tuple[Any, ...]:
        return UrlFileSystem, (self.url, self._options)

    def __repr__(self) -> str:
        return f"UrlFileSystem({self.url!r})"

    def boot_id(self) -> bytes:
        """Return nothing: what a writer said of its page cache is not true of a copy."""
        return b""

    def location(self, path: Path) -> str:
        """Return the URL of a path."""
        return f"{self.url}{path}".rstrip("/")

    def matches(self) -> list[str]:
        """Return the URLs of the directories that the URL matches as a pattern, sorted."""
        filesystem, pattern = self._open()
        filesystem.invalidate_cache()
        scheme = self.url.partition("://")[0]
        with self._listing_named():
            found = sorted(filesystem.glob(pattern))
            return [f"{scheme}://{each}" for each in found if filesystem.isdir(each)]

    def open(self, path: Path, *, writable: bool) -> UrlFile:
        """Open a file; a missing one raises FileNotFoundError at its first read."""
        if writable:
            raise OSError(errno.EROFS, "a store behind a URL is read only", self.location(path))
        return UrlFile(self, path)

    def exists(self, path: Path) -> bool:
        """Tell whether a file or directory has that name."""
        return path in self._tree() or path.name in self._tree().get(path.parent, {})

    def list_directory(self, path: Path) -> list[DirectoryEntry]:
        """List a directory sorted by name, as it was at the first look."""
        return sorted(self._tree().get(path, {}).values())

    def status(self, path: Path) -> FileStatus:
        """Return the size: a copy does not change."""
        is_directory = path in self._tree()
        return FileStatus(0 if is_directory else self.size(path), 0, 0)

    def read_bytes(self, path: Path) -> bytes:
        """Return a whole small file; FileNotFoundError, without a request if the listing says so."""
        if self._listing is not None:
            self.size(path)
        return self._fetch(path, 0, None)

    def size(self, path: Path) -> int:
        """Return a file's length in bytes, as listed if a listing was made."""
        if self._listing is not None:
            entry = self._listing.get(path.parent, {}).get(path.name)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", self.location(path))
            return entry.size
        filesystem, _ = self._open()
        with self._missing_named(path):
            return int(filesystem.size(self._full(path)))

    def read_at(self, path: Path, position: int, length: int) -> bytes:
        """Read up to ``length`` bytes from ``position`` on through the kept blocks."""
        with self._guard:
            blocks = self._blocks.get(path)
        if blocks is None:
            from fsspec.caching import BlockCache

            blocks = BlockCache(
                BLOCK_SIZE,
                lambda begin, end: self._fetch(path, begin, end),
                self.size(path),
                BLOCKS_OF_A_FILE,
            )
        with self._guard:
            self._blocks[path] = blocks
            self._blocks.move_to_end(path)
            if len(self._blocks) > CACHED_FILES_MAX:
                self._blocks.popitem(last=False)
        return bytes(blocks._fetch(position, position + length))

    def map_ranges(self, path: Path, begins: Positions, ends: Positions | None = None) -> ByteArray:
        """Fetch ranges into an array that ends with the last of them; what lies between is zeros.

        Raises FileNotFoundError, and StoreChanged where the file ends before a range does.
        """
        ranges = joined(begins, self.size(path) if ends is None else ends, GAP_MAX)
        if not ranges:
            return np.empty(0, np.uint8)
        # Memory of its own for each page, not for two megabytes around it: most of the array may stay empty.
        space = mmap.mmap(-1, ranges[-1][1], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            space.madvise(mmap.MADV_NOHUGEPAGE)
        array = np.frombuffer(space, np.uint8)
        for group in grouped(ranges, FETCH_SIZE, FETCH_SIZE * FETCHES_AT_ONCE):
            for (begin, end), data in zip(group, self._fetch_all(path, group), strict=True):
                if len(data) != end - begin:
                    raise StoreChanged(
                        f"{self.location(path)} ends at {begin + len(data)} and had {end} bytes"
                        " when it was listed; read a copy that nobody writes to"
                    )
                array[begin:end] = np.frombuffer(data, np.uint8)
        array.flags.writeable = False
        return array

    def _open(self) -> tuple[Any, str]:
        """Return fsspec's file system, which it keeps one of for equal options, and the path in it."""
        if self._opened is None:
            try:
                import fsspec

                filesystem = fsspec.filesystem(self.url.partition("://")[0], **self._options)
            except (ImportError, ValueError, TypeError) as error:
                raise NotAStore(f"{self.url}: {error}") from error
            self._opened = filesystem, filesystem._strip_protocol(self.url)
        return self._opened

    def _full(self, path: Path) -> str:
        return f"{self._open()[1].rstrip('/')}{path}".rstrip("/")

    def _fetch(self, path: Path, begin: int, end: int | None) -> bytes:
        filesystem, _ = self._open()
        with self._missing_named(path):
            return bytes(filesystem.cat_file(self._full(path), start=begin, end=end))

    def _fetch_all(self, path: Path, ranges: Sequence[Range]) -> list[bytes]:
        """Return several ranges, at once where fsspec's file system can."""
        filesystem, _ = self._open()
        begins, ends = [begin for begin, _ in ranges], [end for _, end in ranges]
        paths = [self._full(path)] * len(ranges)
        with self._missing_named(path):
            return list(filesystem.cat_ranges(paths, begins, ends, on_error="raise"))

    def _tree(self) -> dict[Path, dict[str, DirectoryEntry]]:
        if self._listing is None:
            filesystem, base = self._open()
            filesystem.invalidate_cache()
            with self._listing_named():
                found = filesystem.find(base, detail=True, withdirs=True)
            self._listing = _tree_of(
                (full[len(base) :].strip("/"), about) for full, about in found.items()
            )
        return self._listing

    @contextmanager
    def _listing_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:
            raise NotAStore(f"{self.url} cannot be listed: {error}") from error

    @contextmanager
    def _missing_named(self, path: Path) -> Iterator[None]:
        """Give a missing file the name that a message of ours gives it."""
        location = self.location(path)
        try:
            yield
        except FileNotFoundError as error:
            if error.filename == location:
                raise
            raise FileNotFoundError(errno.ENOENT, "no such file", location) from error


def _tree_of(
    found: Iterator[tuple[str, Mapping[str, Any]]],
) -> dict[Path, dict[str, DirectoryEntry]]:
    """Return the entries of each directory, also of those that no listing names: objects have none."""
    tree: dict[Path, dict[str, DirectoryEntry]] = {}
    for relative, about in found:
        parts = PurePosixPath(relative).parts
        directory = ROOT
        for depth, name in enumerate(parts):
            is_directory = depth < len(parts) - 1 or about.get("type") == "directory"
            size = 0 if is_directory else int(about.get("size") or 0)
            tree.setdefault(directory, {}).setdefault(
                name, DirectoryEntry(name, is_directory, size)
            )
            directory /= name
            if is_directory:
                tree.setdefault(directory, {})
    return tree
