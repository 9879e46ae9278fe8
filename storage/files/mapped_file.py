"""One fixed-size file of a log, mapped, with the positions that its bytes have reached.

The positions only grow and always satisfy ``flushed <= committed <= appended <= size``. Each has one
owner: the appender marks *appended*, the commit step *committed*, the flush step *flushed*; reading a
position is safe from any thread.

* appended: bytes are in ``write_array``;
* committed: bytes are in the page cache, so in ``array``, and survive the death of the process;
* flushed: bytes are on the device and survive a power cut.

Without a pool buffer ``write_array`` is ``array``, and appending is committing.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import (
        ByteArray,
        File,
        FileSystem,
        Region,
    )
    from storage.files.transient_store_pool import PoolBuffer

_REWRITE_STEP: Final = 1 << 20


class ReadOnlyMappedFile:
    """A file mapped for reading, at the length it had when it was opened.

    Views of ``array`` stay readable after ``close`` and after the file was deleted.
    """

    def __init__(self, file: File, region: Region, start_offset: int) -> None:
        self.start_offset = start_offset
        self.path: Path = file.path
        self.size = len(region.array)
        self._region: Region | None = region
        self._array = region.array
        self._readable = (0, 0)

    @classmethod
    def open(cls, filesystem: FileSystem, path: Path, *, start_offset: int) -> ReadOnlyMappedFile:
        """Map an existing file; holds no descriptor of its own afterwards."""
        file = filesystem.open(path, writable=False)
        try:
            return cls(file, file.map(writable=False), start_offset)
        finally:
            file.close()

    @property
    def array(self) -> ByteArray:
        """The bytes as they are in the page cache; read only."""
        return self._array

    @property
    def end_offset(self) -> int:
        """Offset of the first byte after this file."""
        return self.start_offset + self.size

    def can_read(self, begin: int, end: int) -> bool:
        """Return whether [begin, end) can be touched; a hole in memory of which there is no more cannot.

        What could be touched once is not asked for again.
        """
        readable_begin, readable_end = self._readable
        if readable_begin <= begin and end <= readable_end:
            return True
        if self._region is None or not self._region.can_read(begin, end):
            return False
        joined = readable_begin <= begin <= readable_end
        self._readable = (readable_begin if joined else begin, end)
        return True

    def close(self) -> None:
        """Let go of the map; the memory goes with the last view. Using ``array`` then is an error."""
        if self._region is not None:
            self._region.close()
            self._region = None
            del self._array


class MappedFile:
    """A file mapped for appending, and for reading what was committed.

    One thread appends; one thread commits; one thread flushes. They may run at once.
    """

    def __init__(self, file: File, region: Region, start_offset: int) -> None:
        self.start_offset = start_offset
        self.path: Path = file.path
        self.array: ByteArray = region.array
        self.write_array: ByteArray = region.array
        self.size = len(self.array)
        self.appended_position = 0
        self.committed_position = 0
        self.flushed_position = 0
        self._file = file
        self._region = region
        self._buffer: PoolBuffer | None = None
        self._warm_position = 0
        self._cached_position = 0

    @classmethod
    def open(cls, filesystem: FileSystem, path: Path, *, start_offset: int) -> MappedFile:
        """Map an existing file; all positions are 0 until ``set_positions``."""
        file = filesystem.open(path, writable=True)
        return cls(file, file.map(writable=True), start_offset)

    @classmethod
    def create(
        cls, filesystem: FileSystem, path: Path, *, size: int, start_offset: int
    ) -> MappedFile:
        """Create a file whose blocks are reserved; file and name are durable. Raises StoreFull.

        When it raises, nothing is left, so it may be tried again.
        """
        file = filesystem.create(path, size, allocate=True)
        try:
            return cls(file, file.map(writable=True), start_offset)
        except BaseException:
            file.close()
            filesystem.unlink(path)
            raise

    @property
    def end_offset(self) -> int:
        """Offset of the first byte after this file."""
        return self.start_offset + self.size

    def set_positions(self, position: int) -> None:
        """Say where recovery found the end: all three positions become ``position``."""
        self.appended_position = self.committed_position = self.flushed_position = position
        self._warm_position = position

    def borrow(self, buffer: PoolBuffer) -> None:
        """Send appends from here on through a pool buffer; only while nothing is uncommitted."""
        if self.committed_position != self.appended_position:
            raise ValueError("a buffer can only be borrowed when all bytes are committed")
        self._buffer = buffer
        self.write_array = buffer.array

    def reserve(self, end: int) -> None:
        """Make stores to ``write_array`` below ``end`` safe; a comparison unless buffered.

        Raises StoreFull when the pool's memory is used up; nothing changed then.
        """
        if self._buffer is not None:
            self._buffer.reserve(end)

    def mark_appended(self, position: int) -> bool:
        """Record that whole records now end at ``position``; call after the stores.

        Returns whether they are committed with that.
        """
        self.appended_position = position
        if self._buffer is None:
            self.committed_position = position
            return True
        self._buffer.mark_appended(position)
        return False

    def commit(self) -> int:
        """Copy what is appended to the page cache, GIL released; return the committed position.

        On OSError or StoreFull nothing is lost and it may be tried again. The buffer goes back to
        its pool once the file is full and committed.
        """
        buffer = self._buffer
        if buffer is None:
            return self.committed_position
        begin, end = self.committed_position, self.appended_position
        if begin < end:
            self._file.pwrite(buffer.array[begin:end], begin)
            buffer.mark_committed(end)
            self.committed_position = end
        if end == self.size:
            self.write_array = self.array
            self._buffer = None
            buffer.release()
        return end

    def flush(self) -> int:
        """Make what was committed before the call durable; return the flushed position.

        After an OSError the file's unflushed bytes are lost to us: never call it again. That its
        name is gone is one, too: what nobody can open any more is not durable.
        """
        position = self.committed_position
        if position > self.flushed_position:
            self._file.sync()
            if self._file.is_removed:
                problem = "the file was removed while it was being written to"
                raise FileNotFoundError(errno.ENOENT, problem, str(self.path))
            self.flushed_position = position
        return self.flushed_position

    def warm(self, end: int) -> None:
        """Fault in the pages from where warming stopped up to ``end``, GIL released.

        One thread at a time; harmless beside appends.
        """
        begin = max(self._warm_position, self.appended_position)
        end = min(end, self.size)
        if begin < end:
            if self._buffer is None:
                self._region.populate(begin, end)
            else:
                self._buffer.warm(begin, end)
            self._warm_position = end

    @property
    def warm_position(self) -> int:
        """Where warming stopped."""
        return self._warm_position

    def fill_cache(self, length: int) -> bool:
        """Bring the next ``length`` bytes that appends will reach into the file's page cache.

        They are neither mapped nor changed, GIL released. False when all of the file has been
        done, or cannot be. One thread at a time; harmless beside appends and commits.
        """
        begin = max(self._cached_position, self.appended_position)
        if begin >= self.size:
            return False
        end = min(begin + length, self.size)
        done = self._file.fill_cache(begin, end)
        self._cached_position = end if done else self.size
        return done

    def rewrite(self, begin: int, end: int) -> None:
        """Write [begin, end) to the file as it is, so that the next sync does, too.

        After a failed sync the kernel may count as written what is in the page cache alone.
        """
        for position in range(begin, end, _REWRITE_STEP):
            data = self.array[position : min(position + _REWRITE_STEP, end)].tobytes()
            self._file.pwrite(data, position)

    def sync(self) -> None:
        """Make every store so far durable, whatever the positions say (recovery's repairs)."""
        self._file.sync()

    def close(self) -> None:
        """Close the descriptor and drop the map; views of it stay valid."""
        if self._buffer is not None:
            self._buffer.release()
            self._buffer = None
        self._region.close()
        self._file.close()
        self.array = self.write_array = self.array[:0].copy()
