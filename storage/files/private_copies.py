"""The bytes of files that a copy-on-write view has changed or made: none of them reaches the base."""

from __future__ import annotations

import itertools
import tempfile
import threading
from pathlib import Path
from typing import Final

import numpy as np

from storage.files.filesystem import Buffer, OsFile, OsFileSystem, OsRegion

_COPY_STEP: Final = 1 << 20


class Scratch:
    """Where the bytes of new files go; gone with the object."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-overlay-")
        self._filesystem = OsFileSystem()
        self._count = itertools.count()

    def create(self, size: int, *, allocate: bool) -> OsFile:
        """Return a new file of zeros."""
        path = Path(self._directory.name) / str(next(self._count))
        return self._filesystem.create(path, size, allocate=allocate)


class PrivateCopy:
    """A file of the base as this process sees it, shared by every opening of it.

    It needs no descriptor once it is mapped, and no memory for what is not changed.
    """

    def __init__(self, source: OsFile, scratch: Scratch) -> None:
        self._source = source
        self._scratch = scratch
        self._lengthened = False
        self._region: OsRegion | None = None
        self._guard = threading.RLock()

    @property
    def size(self) -> int:
        """Its length in bytes now."""
        with self._guard:
            return self._source.size if self._region is None else len(self._region.array)

    def region(self) -> OsRegion:
        """Return the one map of the file, so that all see each other's stores."""
        with self._guard:
            if self._region is None and self._lengthened:
                self._region = self._source.map(writable=True)
            elif self._region is None:
                self._region = self._source.map_private()
                self._source.close()
            return self._region

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes."""
        with self._guard:
            if self._region is None:
                return self._source.pread(length, position)
            return self._region.array[position : position + length].tobytes()

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, lengthening the file."""
        source = np.frombuffer(data, np.uint8)
        with self._guard:
            self.extend(position + len(source))
            if len(source):
                self.region().array[position : position + len(source)] = source

    def extend(self, size: int) -> None:
        """Lengthen the file; maps from before keep the old length, and their stores stay theirs."""
        with self._guard:
            if size <= self.size:
                return
            before = self.region().array
            longer = self._scratch.create(size, allocate=False)
            for start in range(0, len(before), _COPY_STEP):
                piece = before[start : start + _COPY_STEP]
                if piece.any():
                    longer.pwrite(piece, start)
            self._source = longer
            self._lengthened = True
            self._region = None
