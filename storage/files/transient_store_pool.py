"""Buffers in shared memory that appends go to first, and that outlive the process.

A buffer is a file in a memory file system, as long as a log file plus a header page. After kill -9 the
next start of the same store, in the same boot, finds what was acknowledged but not yet committed
and replays it. After a reboot, or for another store, the bytes mean nothing and are never replayed.

Memory is taken as the writer advances, and taken back from what is committed when it runs short.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import StoreBusy, StoreFull
from storage.format.pool_header import (
    COMMITTED_POSITION,
    HEADER_PAGE_SIZE,
    WRITTEN_POSITION,
    PoolHeader,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from storage.files.filesystem import ByteArray, File, FileSystem

NAME_PREFIX: Final = "penstock-"
RESERVE_STEP: Final = 8 << 20  # bytes of memory taken at once, ahead of need
_RETRY_DELAY_MS: Final = 10


class Leftover(NamedTuple):
    """Bytes that a dead writer of this store appended and never committed."""

    commit_offset: int
    data: ByteArray


class PoolBuffer:
    """One borrowed buffer; what a MappedFile appends to."""

    def __init__(self, pool: TransientStorePool, file: File) -> None:
        self._pool = pool
        self._file = file
        self._region = file.map(writable=True)
        self._bytes = memoryview(self._region.array[:HEADER_PAGE_SIZE]).cast("B")  # type: ignore[arg-type]
        self._words = self._bytes.cast("q")
        self._guard = threading.Lock()
        self._reserved = 0
        self._punched = 0

    @property
    def array(self) -> ByteArray:
        """As long as the log file."""
        return self._region.array[HEADER_PAGE_SIZE:]

    def assign(self, header: PoolHeader) -> None:
        """Make it serve a log file from ``header.written`` on; nothing may be uncommitted in it."""
        # At every instant a reader of the header sees written <= committed, so whatever it dies
        # between, no byte of the file before is replayed into this one.
        self._words[WRITTEN_POSITION // 8] = 0
        identity = header.encode_identity()
        self._bytes[: len(identity)] = identity
        self._words[COMMITTED_POSITION // 8] = header.committed
        self._words[WRITTEN_POSITION // 8] = header.written
        self._reserved = 0
        self._punched = 0

    def reserve(self, end: int) -> None:
        """Make stores below ``end`` safe.

        Raises StoreBusy when memory will return once the commit step has caught up, StoreFull when
        there is none even so.
        """
        if end <= self._reserved:
            return
        with self._guard:
            begin = max(self._reserved, self._words[COMMITTED_POSITION // 8])
            size = len(self._region.array) - HEADER_PAGE_SIZE
            goal = min(max(end, begin + RESERVE_STEP), size)
            try:
                self._file.allocate(HEADER_PAGE_SIZE + begin, goal - begin)
            except StoreFull:
                self._pool.give_memory_back()
                goal = end
                try:
                    self._file.allocate(HEADER_PAGE_SIZE + begin, goal - begin)
                except StoreFull as error:
                    if self._pool.has_uncommitted():
                        raise StoreBusy(
                            "the transient pool's memory is full of bytes not committed yet",
                            retry_delay_ms=_RETRY_DELAY_MS,
                        ) from error
                    raise
            self._reserved = max(goal, self._reserved)

    def warm(self, begin: int, end: int) -> None:
        """Reserve and fault in [begin, end); doing less is no error."""
        with suppress(StoreFull, StoreBusy):
            self.reserve(end)
            self._region.populate(HEADER_PAGE_SIZE + begin, HEADER_PAGE_SIZE + end)

    def mark_appended(self, position: int) -> None:
        """Record that bytes below ``position`` are whole."""
        self._words[WRITTEN_POSITION // 8] = position

    def mark_committed(self, position: int) -> None:
        """Record that bytes below ``position`` are in the log file."""
        self._words[COMMITTED_POSITION // 8] = position

    @property
    def has_uncommitted(self) -> bool:
        """Whether it holds bytes that are in no file."""
        return self._words[WRITTEN_POSITION // 8] > self._words[COMMITTED_POSITION // 8]

    def give_memory_back(self) -> None:
        """Free the pages of what is committed; nobody reads them here."""
        committed = self._words[COMMITTED_POSITION // 8]
        end = min(committed, self._reserved) // HEADER_PAGE_SIZE * HEADER_PAGE_SIZE
        if end > self._punched:
            self._file.zero(HEADER_PAGE_SIZE + self._punched, end - self._punched)
            self._punched = end

    def release(self) -> None:
        """Give the buffer back to its pool."""
        self._pool.take_back(self)

    def close(self) -> None:
        """Let go of map and descriptor; the memory goes with the last view of ``array``."""
        self._words.release()
        self._bytes.release()
        self._region.close()
        self._file.close()


class TransientStorePool:
    """The buffers of one store. Safe to call from several threads."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        *,
        store_id: bytes,
        boot_id: bytes,
        file_size: int,
        buffer_count: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._store_id = store_id
        self._boot_id = boot_id
        self._file_size = file_size
        self._guard = threading.RLock()
        self._unopened = [self._path(index) for index in range(buffer_count)]
        self._free: list[PoolBuffer] = []
        self._borrowed: list[PoolBuffer] = []

    def _path(self, index: int) -> Path:
        return self._directory / f"{NAME_PREFIX}{self._store_id.hex()}-{index}"

    def leftover(self) -> list[Leftover]:
        """Return what a dead writer of this store and boot left uncommitted, by commit offset.

        The views stay good after ``discard_leftover``. Whether a stretch continues the log, and
        where its last whole record ends, is for recovery to find out by scanning it.
        """
        found = []
        for _, file, header in self._headers():
            if header is None or (header.store_id, header.boot_id) != (
                self._store_id,
                self._boot_id,
            ):
                continue
            end = min(header.written, header.file_size, file.size - HEADER_PAGE_SIZE)
            if header.start_offset >= 0 and 0 <= header.committed < end:
                data = file.map(writable=False).array[HEADER_PAGE_SIZE:]
                offset = header.start_offset + header.committed
                found.append(Leftover(offset, data[header.committed : end]))
        return sorted(found, key=lambda leftover: leftover.commit_offset)

    def discard_leftover(self) -> None:
        """Remove this store's buffers, and every buffer of an earlier boot.

        Call it after what ``leftover`` returned is durable in the log, and before ``borrow``.
        """
        for path, _, header in self._headers():
            ours = path.name.startswith(f"{NAME_PREFIX}{self._store_id.hex()}-")
            if ours or (header is not None and header.boot_id != self._boot_id):
                # In a shared directory another user's buffers are not ours to remove.
                with suppress(FileNotFoundError, PermissionError):
                    self._filesystem.unlink(path)

    def _headers(self) -> Iterator[tuple[Path, File, PoolHeader | None]]:
        for entry in self._filesystem.list_directory(self._directory):
            if entry.is_directory or not entry.name.startswith(NAME_PREFIX):
                continue
            path = self._directory / entry.name
            try:
                file = self._filesystem.open(path, writable=False)
            except (FileNotFoundError, PermissionError):
                continue
            try:
                yield path, file, PoolHeader.decode(file.pread(HEADER_PAGE_SIZE, 0))
            finally:
                file.close()

    def borrow(self, start_offset: int, *, position: int = 0) -> PoolBuffer:
        """Return a buffer for the log file at ``start_offset``, committed up to ``position``.

        Raises StoreBusy when all are lent, StoreFull when there is no memory for a header.
        """
        with self._guard:
            if self._free:
                buffer = self._free.pop()
            elif self._unopened:
                buffer = PoolBuffer(self, self._create(self._unopened[-1]))
                self._unopened.pop()
            else:
                raise StoreBusy(
                    "all buffers of the transient pool wait to be committed",
                    retry_delay_ms=_RETRY_DELAY_MS,
                )
            buffer.assign(
                PoolHeader(
                    self._boot_id, self._store_id, start_offset, self._file_size,
                    written=position, committed=position,
                )
            )  # fmt: skip
            self._borrowed.append(buffer)
            return buffer

    def _create(self, path: Path) -> File:
        size = HEADER_PAGE_SIZE + self._file_size
        file = self._filesystem.create(path, size, allocate=False, mode=0o600)
        try:
            file.allocate(0, HEADER_PAGE_SIZE)
        except BaseException:
            self._filesystem.unlink(path)
            raise
        return file

    def take_back(self, buffer: PoolBuffer) -> None:
        """Return a buffer whose bytes are all committed."""
        with self._guard:
            if buffer in self._borrowed:
                self._borrowed.remove(buffer)
                self._free.append(buffer)

    def has_uncommitted(self) -> bool:
        """Whether any buffer holds bytes that are in no file."""
        with self._guard:
            return any(buffer.has_uncommitted for buffer in self._borrowed)

    def give_memory_back(self) -> None:
        """Free the memory of everything committed."""
        with self._guard:
            for buffer in (*self._free, *self._borrowed):
                buffer.give_memory_back()

    def close(self) -> None:
        """Remove the buffers, unless one holds bytes that are in no file: these stay for replay."""
        with self._guard:
            if not self.has_uncommitted():
                for buffer in (*self._free, *self._borrowed):
                    buffer.close()
                self._free.clear()
                self._borrowed.clear()
                self.discard_leftover()
