"""Open files of the operating system, and maps of them."""

from __future__ import annotations

import errno
import mmap
import os
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.files import libc
from storage.files.protocol import Buffer, ByteArray
from storage.files.system.os_errors import check_room, checking_room
from storage.files.uncached import read_uncached

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from storage.files.ranges import Range

PAGE_SIZE: Final = mmap.PAGESIZE
_ZEROS: Final = bytes(1 << 20)
_FEW_BYTES: Final = 4_096  # written while holding the GIL


class Region:
    """A map of an operating-system file."""

    def __init__(self, descriptor: int, size: int, protection: int) -> None:
        self._memory: mmap.mmap | None = None
        if size == 0:
            array = np.empty(0, np.uint8)
        else:
            self._memory = mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED, prot=protection)
            array = np.frombuffer(self._memory, np.uint8)
        self._array: ByteArray | None = array
        self._address: int = array.ctypes.data

    @property
    def array(self) -> ByteArray:
        """The file's bytes; stores to it are seen by every process at once, durable by no means."""
        if self._array is None:
            raise ValueError("the map was closed")
        return self._array

    def populate(self, begin: int, end: int) -> None:
        """Fault the pages of [begin, end) in for writing without changing them, GIL released.

        Safe beside stores to the same pages. Failing to warm is not an error.
        """
        array = self.array
        begin = begin // PAGE_SIZE * PAGE_SIZE
        end = min(end, len(array))
        if begin < end:
            libc.populate_for_write(array.ctypes.data + begin, end - begin)

    def can_read(self, begin: int, end: int) -> bool:
        """Return whether [begin, end) can be touched; False where that would be a signal.

        What a file holds always can. A hole of a file cannot on a full file system in memory, such as tmpfs.
        """
        begin = begin // PAGE_SIZE * PAGE_SIZE
        return begin >= end or libc.can_read(self._address + begin, end - begin)

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
        """Let go of the array; the memory is unmapped when the last view of it is gone."""
        self._array = None
        self._memory = None


class File:
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

    def map(self, *, writable: bool) -> Region:
        """Map the length it has now; the map outlives ``close``."""
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        with checking_room(self._path):
            return Region(self._descriptor, self.size, protection)

    def pread(self, length: int, position: int) -> bytes:
        """Read up to ``length`` bytes; shorter only at the end of the file."""
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
        """Fill an array from a position, GIL released; return how many bytes there were.

        Of whole pages, into an array of ``aligned_array``, the device itself is read where the file system can do
        that, and the page cache stays as it was.
        """
        return read_uncached(self._descriptor, into, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of ``data``, extending the file; part may be written when it raises."""
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
        except OSError as error:
            check_room(error, self._path)
            raise

    def allocate(self, position: int, length: int) -> None:
        """Reserve blocks for a range, extending the file, so that stores to it cannot run out.

        New bytes are zeros, old ones stay. Raises StoreFull.
        """
        if length <= 0:
            return
        with checking_room(self._path):
            if libc.fallocate(self._descriptor, position, length):
                return
        # Where fallocate is not supported, blocks come from writing: back what is there with
        # itself and what is not with zeros, never by one byte a block as glibc would.
        for start in range(position, position + length, len(_ZEROS)):
            count = min(len(_ZEROS), position + length - start)
            present = self.pread(count, start)
            self.pwrite(present + _ZEROS[: count - len(present)], start)

    def extend(self, size: int) -> None:
        """Make the file ``size`` long with a hole at the end; never shortens."""
        if size > self.size:
            with checking_room(self._path):
                os.ftruncate(self._descriptor, size)

    def next_data(self, position: int) -> tuple[int, int]:
        """Return begin and end of the first range that is not a hole, from ``position`` on.

        It is empty, at the file's size, if nothing is. Where the file system knows no holes all is one range.
        """
        try:
            begin = os.lseek(self._descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return self.size, self.size
        return begin, os.lseek(self._descriptor, begin, os.SEEK_HOLE)

    def zero(self, position: int, length: int) -> None:
        """Make a range read as zeros, freeing its blocks where that is possible."""
        length = min(length, self.size - position)
        if length <= 0 or libc.punch_hole(self._descriptor, position, length):
            return
        for start in range(position, position + length, len(_ZEROS)):
            self.pwrite(_ZEROS[: min(len(_ZEROS), position + length - start)], start)

    def fill_cache(self, begin: int, end: int) -> bool:
        """Bring [begin, end) into the page cache, clean, GIL released; nothing of it stays mapped.

        False if it cannot be done, which is not an error.
        """
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
        """Make the bytes, and a length they need, durable (``fdatasync``), GIL released.

        Covers stores to maps which happened before the call. After an OSError the bytes may be
        gone even if a later sync succeeds: never retry, never acknowledge.
        """
        os.fdatasync(self._descriptor)

    def sync_all(self) -> None:
        """Make the bytes and all metadata durable (``fsync``)."""
        os.fsync(self._descriptor)

    @property
    def is_removed(self) -> bool:
        """Whether it has no name any more, so that nobody who opens the store later sees it."""
        return os.fstat(self._descriptor).st_nlink == 0

    def give_name(self, path: Path) -> None:
        """Put a file that was opened without a name at its path. Raises FileExistsError."""
        # With a directory descriptor, which an absolute path ignores, Python calls linkat and
        # follows the link in /proc; without one it calls link, which does not.
        source = f"/proc/self/fd/{self._descriptor}"
        os.link(source, path, src_dir_fd=self._descriptor, follow_symlinks=True)

    def close(self) -> None:
        """Close the descriptor; maps stay."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()
