"""The checksums of index files, read: what of a file may be believed.

They lie beside the index in ``index-checksums/``, since a broker takes every file of ``index/`` for an
index file. A file without checksums (a broker's, or an older version's) is believed as it is.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from storage.errors import StoreFull
from storage.format import index_checksums as layout
from storage.format.index_checksums import ChecksumIdentity, ChecksumRecord
from storage.kernels.index.checksums import find_bad_block

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, FileSystem, ReadFileSystem

Shape = tuple[int, int]  # counts of slots and entries, as of an ``IndexShape``

DAMAGED_SUFFIX: Final = (
    ".damaged"  # of an empty file by which a reader asks for an index file again
)


def report_damage(filesystem: FileSystem, directory: Path, name: str) -> None:
    """Ask the indexer to look at an index file, and to make it again if it is damaged.

    Nothing is asked where nothing can be written; the indexer's own scrub finds it later.
    """
    with suppress(OSError, StoreFull):
        path = directory / (name + DAMAGED_SUFFIX)
        filesystem.create(path, 0, allocate=False).close()


class IndexChecksums:
    """The checksums of one index file."""

    def __init__(self, array: ByteArray) -> None:
        self._array = array
        self._put_count: npt.NDArray[np.int64] = array[
            layout.PUT_COUNT_POSITION : layout.PUT_COUNT_POSITION + 8
        ].view(np.int64)
        self.sums: npt.NDArray[np.int64] = array[layout.SUMS_POSITION :].view(np.int64)

    @classmethod
    def find(cls, filesystem: ReadFileSystem, path: Path, shape: Shape) -> IndexChecksums | None:
        """Open the checksums at ``path``; None without usable ones."""
        try:
            array = filesystem.map_ranges(path, 0)
        except FileNotFoundError:
            return None
        return cls(array) if checksums_fit(array, int(path.name), shape) else None

    @property
    def put_count(self) -> int:
        """Odd while a put is under way."""
        return int(self._put_count[0])

    def records(self) -> list[ChecksumRecord]:
        """Return what was noted at the last syncs of the index file, oldest first."""
        return layout.decode_records(bytes(self._array[: layout.SUMS_POSITION]))

    def newest(self) -> ChecksumRecord | None:
        """Return what was noted at the last sync of the index file."""
        records = self.records()
        return records[-1] if records else None

    def bad_block(self, data: ByteArray, shape: Shape, begin: int, end: int) -> int:
        """Return the first block in ``[begin, end)`` of the file that is not as it was put; -1 for none."""
        return int(find_bad_block(data, *shape, self.sums, begin, end))


def checksums_fit(array: ByteArray, number: int, shape: Shape) -> bool:
    """Whether the bytes of a checksum file are whole and of an index file of that name and shape."""
    if len(array) != layout.checksum_file_size(*shape):
        return False
    wanted = ChecksumIdentity(number, *shape)
    return ChecksumIdentity.decode(bytes(array[: layout.IDENTITY.size])) == wanted


def block_count(shape: Shape) -> int:
    """Return how many blocks a file of that shape has."""
    return layout.block_count(*shape)
