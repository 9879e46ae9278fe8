"""Where a store lies: a directory of this machine, or a URL that fsspec opens.

Files of this machine are mapped. Of any other file only the wanted ranges are fetched, into an array as
long as the file: memory is taken only where something was fetched, and positions are the file's own, so
whoever reads the array need not know. Small reads go through a cache of blocks.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.errors import InvalidOption, PipelineError

ByteArray = npt.NDArray[np.uint8]
Range = tuple[int, int]
Positions = int | npt.NDArray[np.int64]

BLOCK_SIZE: Final = 64 << 10
BLOCKS_MAX: Final = 1_024  # 64 MiB of small reads for one store
FETCH_SIZE: Final = 8 << 20
FETCHES_AT_ONCE: Final = 4
GAP_MAX: Final = 256 << 10  # bytes that nobody wants; fetching them costs less than a request
LOCAL_GAP_MAX: Final = 16 << 10  # likewise of a file of this machine
LOCAL_SCHEME: Final = "file://"


class Entry(NamedTuple):
    """One name in a directory."""

    name: str
    path: str
    size: int
    is_directory: bool


class _Source:
    """What the URLs of one store share: a file system, a listing, blocks that were read."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.tree: dict[str, dict[str, Entry]] = {}
        self.listed: set[str] = set()  # directories whose whole tree is there
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._guard = Lock()

    def filesystem(self, url: str) -> Any:
        """Return the file system for a URL; fsspec keeps one for equal options."""
        import fsspec

        try:
            return fsspec.filesystem(url.partition("://")[0], **self.options)
        except (ImportError, ValueError, TypeError) as error:
            raise InvalidOption("store", f"{url}: {error}") from error

    def block(self, url: Url, number: int) -> bytes:
        """Return one block of a file, shorter where the file ends."""
        key = (str.__str__(url), number)
        with self._guard:
            if key in self._blocks:
                self._blocks.move_to_end(key)
                return self._blocks[key]
        data = url.fetch(number * BLOCK_SIZE, (number + 1) * BLOCK_SIZE)
        with self._guard:
            self._blocks[key] = data
            while len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        return data


class Url(str):
    """A URL as text, with what it takes to open it; ``/`` makes URLs of the same store.

    Pickled with its options and nothing that was read. The options may hold secrets: they are in no
    text of it.
    """

    _source: _Source

    def __new__(
        cls, text: str, options: Mapping[str, Any] | None = None, *, source: _Source | None = None
    ) -> Url:
        """Return the URL ``text``, of the same store as those that share ``source``."""
        made = super().__new__(cls, text)
        made._source = source or _Source(dict(options or {}))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return Url, (str.__str__(self), self._source.options)

    def __str__(self) -> str:
        """Return itself: as text a URL stays what can be opened."""
        return self

    def __truediv__(self, name: str) -> Url:
        return Url(f"{self.rstrip('/')}/{name}", source=self._source)

    @property
    def name(self) -> str:
        """The last part."""
        return self.rstrip("/").rpartition("/")[2]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        filesystem = self._source.filesystem(self)
        return filesystem, filesystem._strip_protocol(str.__str__(self))

    def look(self) -> None:
        """List everything below anew, in one go; what is listed from now on is what there is now."""
        filesystem, path = self._opened
        filesystem.invalidate_cache()
        try:
            found = filesystem.find(path, detail=True, withdirs=True)
        except (OSError, ValueError) as error:
            raise InvalidOption("store", f"{self}: cannot be listed: {error}") from error
        own = str.__str__(self).rstrip("/")
        tree = self._source.tree
        for known in [known for known in tree if f"{known}/".startswith(f"{own}/")]:
            del tree[known]
        for full, about in found.items():
            rest = full[len(path) :].strip("/")
            if rest:
                self._note(tree, rest.split("/"), about)
        self._source.listed.add(own)

    def _note(
        self, tree: dict[str, dict[str, Entry]], parts: list[str], about: Mapping[str, Any]
    ) -> None:
        """Put a file into the tree, and its directories: a store of objects has none."""
        place = self
        for depth, name in enumerate(parts):
            directory, place = place, place / name
            is_directory = depth < len(parts) - 1 or about.get("type") == "directory"
            size = 0 if is_directory else int(about.get("size") or 0)
            entry = Entry(name, place, size, is_directory)
            tree.setdefault(str.__str__(directory).rstrip("/"), {}).setdefault(name, entry)
            if is_directory:
                tree.setdefault(str.__str__(place), {})

    def entries(self) -> list[Entry]:
        """List a directory; FileNotFoundError if there is none."""
        own = str.__str__(self).rstrip("/")
        if not any(f"{own}/".startswith(f"{above}/") for above in self._source.listed):
            self.look()
        tree = self._source.tree
        if own not in tree:
            raise FileNotFoundError(errno.ENOENT, "no such directory", own)
        return list(tree[own].values())

    def is_dir(self) -> bool:
        """Tell whether there is anything below."""
        try:
            return bool(self.entries())
        except FileNotFoundError:
            return False

    def glob(self) -> list[str]:
        """Return the directories that this URL matches as a pattern, sorted, of one source."""
        filesystem, path = self._opened
        filesystem.invalidate_cache()
        try:
            found = filesystem.glob(path)
        except (OSError, ValueError) as error:
            raise InvalidOption("store", f"{self}: cannot be listed: {error}") from error
        scheme = self.partition("://")[0]
        return [
            Url(f"{scheme}://{each}", self._source.options)
            for each in sorted(found)
            if filesystem.isdir(each)
        ]

    def size(self) -> int:
        """Return the file's size in bytes."""
        filesystem, path = self._opened
        with _named(self):
            return int(filesystem.size(path))

    def read_bytes(self) -> bytes:
        """Return a whole file."""
        return self.fetch(0, None)

    def fetch(self, begin: int, end: int | None) -> bytes:
        """Return bytes ``[begin, end)``, fewer where the file ends. Raises FileNotFoundError."""
        filesystem, path = self._opened
        with _named(self):
            return bytes(filesystem.cat_file(path, start=begin, end=end))

    def fetch_all(self, ranges: Sequence[Range]) -> list[bytes]:
        """Return several ranges, at once where the file system can. Raises FileNotFoundError."""
        filesystem, path = self._opened
        begins, ends = [begin for begin, _ in ranges], [end for _, end in ranges]
        with _named(self):
            return list(filesystem.cat_ranges([path] * len(ranges), begins, ends, on_error="raise"))

    def read_at(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from the cache of blocks, fewer where the file ends."""
        parts = []
        while size > 0:
            number, skipped = divmod(position, BLOCK_SIZE)
            part = self._source.block(self, number)[skipped : skipped + size]
            if not part:
                break
            parts.append(part)
            position, size = position + len(part), size - len(part)
            if position % BLOCK_SIZE:
                break
        return b"".join(parts)


class _named:  # noqa: N801  reads as the statement it is
    """Gives a missing file its name, as files of this machine have it."""

    def __init__(self, url: Url) -> None:
        self._url = str.__str__(url)

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, FileNotFoundError) and error.filename != self._url:
            raise FileNotFoundError(errno.ENOENT, "no such file", self._url) from error


Place = Path | Url


def url_or_path(store: str) -> str:
    """Return what is written with a scheme as a URL, and the path of a directory of this machine."""
    if isinstance(store, Url):
        return store
    path = store.removeprefix(LOCAL_SCHEME)
    return Url(path) if "://" in path else path


def place_of(store: Place | str) -> Place:
    """Return where a store lies, by how it is written: with a scheme or not."""
    if isinstance(store, Url | Path):
        return store
    place = url_or_path(store)
    return place if isinstance(place, Url) else Path(place)


def entries(directory: Place) -> list[Entry]:
    """List a directory; nothing where there is none."""
    try:
        if isinstance(directory, Url):
            return directory.entries()
        with os.scandir(directory) as found:
            return [
                Entry(
                    each.name,
                    each.path,
                    0 if (is_directory := each.is_dir()) else each.stat().st_size,
                    is_directory,
                )
                for each in found
            ]
    except (FileNotFoundError, NotADirectoryError):
        return []


def file_size(path: str) -> int:
    """Return the size of a file in bytes."""
    return path.size() if isinstance(path, Url) else Path(path).stat().st_size


def file_name_of(path: str) -> str:
    """Return the last part of a path."""
    return path.rpartition("/")[2]


def read_at(path: str, position: int, size: int) -> bytes:
    """Return up to ``size`` bytes of a file, fewer where it ends. Raises FileNotFoundError."""
    if isinstance(path, Url):
        return path.read_at(position, size)
    with open(path, "rb", buffering=0) as handle:  # noqa: PTH123  paths are text in plans
        return os.pread(handle.fileno(), size, position)


def map_file(path: str, begins: Positions = 0, ends: Positions | None = None) -> ByteArray:
    """Return a file as a read-only array, unmapped when that goes. Raises FileNotFoundError.

    Of a file that is not on this machine only the ranges from each of ``begins`` to the one of ``ends``
    are there, to its end if there are none; the array ends with the last of them, and what lies
    between them is zeros. Of a file of this machine that is asked for in many ranges only their pages
    are read from the disk, ahead of their use.
    """
    if isinstance(path, Url):
        return _fetched(path, joined(begins, path.size() if ends is None else ends))
    if not os.path.getsize(path):  # noqa: PTH202
        return np.empty(0, np.uint8)
    mapped = np.memmap(path, np.uint8, "r")
    if isinstance(begins, np.ndarray) and ends is not None:
        _want(mapped._mmap, joined(begins, ends, LOCAL_GAP_MAX))  # type: ignore[attr-defined]
    return mapped.view(np.ndarray)


def _want(mapped: mmap.mmap, ranges: Sequence[Range]) -> None:
    """Tell the kernel which ranges will be read, and that their neighbours will not."""
    mapped.madvise(mmap.MADV_RANDOM)
    for begin, end in ranges:
        first = begin - begin % mmap.PAGESIZE
        if first < len(mapped):
            mapped.madvise(mmap.MADV_WILLNEED, first, min(end, len(mapped)) - first)


def joined(begins: Positions, ends: Positions, gap_max: int = GAP_MAX) -> list[Range]:
    """Sort ranges and join those with little between them."""
    lows, highs = np.atleast_1d(begins), np.atleast_1d(ends)
    order = np.argsort(lows)
    order = order[lows[order] < highs[order]]
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    firsts = np.flatnonzero(np.concatenate(([True], lows[1:] > highs[:-1] + gap_max))[: len(lows)])
    lasts = np.append(firsts[1:] - 1, len(lows) - 1)[: len(firsts)]
    return list(zip(lows[firsts].tolist(), highs[lasts].tolist(), strict=True))


def _fetched(url: Url, ranges: Sequence[Range]) -> ByteArray:
    if not ranges:
        return np.empty(0, np.uint8)
    # Memory of its own for each page, not for two megabytes around it: most of the array may stay empty.
    space = mmap.mmap(-1, ranges[-1][1], flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        space.madvise(mmap.MADV_NOHUGEPAGE)
    array = np.frombuffer(space, np.uint8)
    for group in _groups(ranges):
        for (begin, end), data in zip(group, url.fetch_all(group), strict=True):
            if len(data) != end - begin:
                raise PipelineError(
                    f"{url} ends at {begin + len(data)} and had {end} bytes when it was listed;"
                    " read a copy that nobody writes to"
                )
            array[begin:end] = np.frombuffer(data, np.uint8)
    array.flags.writeable = False
    return array


def _groups(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    group: list[Range] = []
    size = 0
    for low, high in ranges:
        for begin in range(low, high, FETCH_SIZE):
            part = (begin, min(begin + FETCH_SIZE, high))
            if size + part[1] - begin > FETCH_SIZE * FETCHES_AT_ONCE:
                yield group
                group, size = [], 0
            group.append(part)
            size += part[1] - begin
    if group:
        yield group


class Searchable:
    """A file to look into: ``find`` and slices, as a map has them, by small reads."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, wanted: bytes, begin: int, end: int) -> int:
        """Return the first position of ``wanted`` within ``[begin, end)``, -1 if it is not there."""
        found = read_at(self._path, begin, end - begin).find(wanted)
        return found if found < 0 else begin + found

    def __getitem__(self, where: slice) -> bytes:
        return read_at(self._path, where.start, where.stop - where.start)
