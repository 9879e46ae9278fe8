"""The bytes of files that a copy-on-write view has changed or made: none of them reaches the base.

New ones lie in one file of the temporary directory that has no name, each from a page on: they cost one
descriptor and go with the process, however it ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.filesystem import PAGE_SIZE, Buffer, OsFile, OsRegion

_COPY_STEP: Final = 1 << 20


class Scratch:
    """Gives out files; what they hold is gone with the last reference to any of it."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._file: OsFile | None = None
        self._end = 0

    def create(self, size: int, *, allocate: bool) -> ScratchFile:
        """Return a file of zeros; with ``allocate`` its blocks are reserved. Raises StoreFull."""
        with self._guard:
            file = self._file = self._file or _unnamed_file()
            begin, end = self._end, self._end + -(-size // PAGE_SIZE) * PAGE_SIZE
            if allocate:
                file.allocate(begin, end - begin)
            file.extend(end)
            self._end = end
        return ScratchFile(file, begin, size)


class ScratchFile:
    """A file of the scratch, of a length that stays; its maps share their stores."""

    def __init__(self, file: OsFile, begin: int, size: int) -> None:
        self._file = file
        self._begin = begin
        self.size = size

    def map(self) -> OsRegion:
        """Map all of it for reading and writing."""
        return self._file.map_part(self._begin, self.size)

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; shorter only at the end."""
        return self._file.pread(max(0, min(length, self.size - position)), self._begin + position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write ``data``, which must not go beyond the end. Raises StoreFull."""
        self._file.pwrite(data, self._begin + position)


class PrivateCopy:
    """The bytes of a file as this process sees it, shared by every opening of it.

    They are the base's until the file is lengthened, its stores going to a private map; those of a new
    or a lengthened file lie in the scratch. It needs no descriptor once it is mapped, and no memory
    for what is not changed.
    """

    def __init__(self, source: OsFile | ScratchFile, scratch: Scratch) -> None:
        self._source = source
        self._scratch = scratch
        self._private: OsRegion | None = None
        self._guard = threading.RLock()

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        with self._guard:
            return self._source.size if self._private is None else len(self._private.array)

    def region(self) -> OsRegion:
        """Return a map of the file; all see each other's stores."""
        with self._guard:
            if isinstance(self._source, ScratchFile):
                return self._source.map()
            if self._private is None:
                self._private = self._source.map_private()
                self._source.close()
            return self._private

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes."""
        with self._guard:
            if self._private is None:
                return self._source.pread(length, position)
            return self._private.array[position : position + length].tobytes()

    def next_data(self, position: int) -> tuple[int, int]:
        """Return begin and end of the next range that is not a hole of the base; all that follows once anything is changed."""
        with self._guard:
            if self._private is None and isinstance(self._source, OsFile):
                return self._source.next_data(position)
            return position, self.size

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, lengthening the file."""
        source = np.frombuffer(data, np.uint8)
        with self._guard:
            self.extend(position + len(source))
            if isinstance(self._source, ScratchFile):
                self._source.pwrite(source, position)
            elif len(source):
                self.region().array[position : position + len(source)] = source

    def extend(self, size: int) -> None:
        """Lengthen the file; maps from before keep the old length, and their stores stay theirs."""
        with self._guard:
            before = self.size
            if size <= before:
                return
            longer = self._scratch.create(size, allocate=False)
            for start in range(0, before, _COPY_STEP):
                piece = self.pread(_COPY_STEP, start)
                if np.frombuffer(piece, np.uint8).any():
                    longer.pwrite(piece, start)
            if isinstance(self._source, OsFile):
                self._source.close()
            self._source, self._private = longer, None


def _unnamed_file() -> OsFile:
    with tempfile.TemporaryFile() as file:
        return OsFile(Path(tempfile.gettempdir()), os.dup(file.fileno()))
