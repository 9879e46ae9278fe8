"""The journal of leases, as the reader that keeps them writes it: blocks, generations, syncs.

What ``append`` has returned for is in the page cache, so that a killed process loses nothing; what ``sync``
has returned for is on the disk. A prefix of the journal is what was true at a time: what is lost of its end
is handed out again.

A file's blocks are reserved ahead, so that writing one does not meet a full disk, and a sync of it has no
metadata to write. A new generation is written beside the old one, from what is in memory then; what is
appended meanwhile goes to the old one, and to the new one where that does not have it already. It gets
its name when it is synced, and then the old one goes.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from storage.errors import StoreClosed, StoreFailed, StoreFull
from storage.format.leases.journal import (
    EVENTS,
    KEY,
    NAMES,
    encode_block,
    encode_key,
    encode_names,
)
from storage.workers import FailureLatch

if TYPE_CHECKING:
    from collections.abc import Hashable

    from storage.files.filesystem import File, FileSystem
    from storage.leases.loading import LoadedJournal

RESERVED_BYTES: Final = 1 << 20
TEMPORARY: Final = ".tmp"


class _JournalFile:
    """One generation, and where its blocks end."""

    def __init__(
        self, file: File, path: Path, end: int = 0, block_count: int = 0, crc: int = 0
    ) -> None:
        self.file = file
        self.path = path
        self.end = end
        self.synced_end = 0
        self.begin_size = end  # what it was when it was made
        self._block_count = block_count
        self._crc = crc
        self._reserved = file.size
        self._unwritten = b""

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be written. Raises StoreFull with nothing changed."""
        if self._unwritten:
            self._write()
        needed = self.end + size
        if needed > self._reserved:
            until = -(-needed // RESERVED_BYTES) * RESERVED_BYTES
            self.file.allocate(self._reserved, until - self._reserved)
            self._reserved = until

    def append(self, blocks: list[tuple[int, bytes]]) -> None:
        """Add blocks. After an error they are written with the next ones, before those."""
        for kind, payload in blocks:
            data, self._crc = encode_block(kind, self._block_count, payload, self._crc)
            self._block_count += 1
            self._unwritten += data
        self._write()

    def _write(self) -> None:
        self.file.pwrite(self._unwritten, self.end)
        self.end += len(self._unwritten)
        self._reserved = max(self._reserved, self.end)
        self._unwritten = b""


class Journal:
    """All methods may be called from any thread."""

    def __init__(self, filesystem: FileSystem, directory: Path, key: bytes) -> None:
        self.key = key
        self._filesystem = filesystem
        self._directory = directory
        self._guard = threading.Lock()
        self._sync_guard = threading.Lock()
        self._latch = FailureLatch()
        self._current: _JournalFile | None = None
        self._generation = 0
        self._successor: _JournalFile | None = None
        self._moved: set[Hashable] = set()
        self._tail: list[tuple[int, bytes]] = []

    def begin(self, generation: int) -> None:
        """Begin an empty journal, of a generation after the one given; durable on return."""
        self._generation = generation
        self.begin_generation()
        try:
            self.switch()
        except BaseException:
            self.abandon()
            raise

    def go_on(self, loaded: LoadedJournal) -> None:
        """Append to the file that was read, after what is whole of it."""
        self._generation = loaded.generation
        path = self._path(loaded.generation)
        self._current = _JournalFile(
            self._filesystem.open(path, writable=True), path, loaded.end, loaded.block_count,
            loaded.crc,
        )  # fmt: skip

    def _path(self, generation: int) -> Path:
        return self._directory / f"{generation:020d}"

    def close(self) -> None:
        """Sync what was appended, and let go of the file. Raises StoreFailed, OSError."""
        try:
            if self._current is not None and self._latch.failure is None:
                self.sync()
        finally:
            with self._guard:
                for each in (self._current, self._successor):
                    if each is not None:
                        each.file.close()
                self._current = self._successor = None

    @property
    def size(self) -> int:
        """Bytes of its blocks."""
        return 0 if self._current is None else self._current.end

    @property
    def begin_size(self) -> int:
        """Bytes it had when it was made, or opened."""
        return 0 if self._current is None else self._current.begin_size

    @property
    def is_synced(self) -> bool:
        """Whether nothing was appended since the last sync."""
        current = self._current
        return current is None or current.synced_end == current.end

    @property
    def is_replaced(self) -> bool:
        """Whether another file is about to take its place: whoever appends may wait for the disk."""
        return self._successor is not None

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing more is written, or None."""
        return self._latch.failure

    def _open_file(self) -> _JournalFile:
        self._latch.check()
        if self._current is None:
            raise StoreClosed("the journal of leases is closed")
        return self._current

    # ---- appending

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be appended. Raises StoreFull with nothing changed, StoreFailed."""
        with self._guard:
            self._open_file().reserve(size)

    def append(
        self, part: Hashable, events: bytes = b"", names: dict[str, Any] | None = None
    ) -> None:
        """Add names, then events, of one part of what is journalled; it survives the process on return.

        Raises StoreFull, and then they are written with the next ones; StoreFailed.
        """
        blocks = [(NAMES, encode_names(names))] if names else []
        if events:
            blocks.append((EVENTS, events))
        with self._guard:
            current = self._open_file()
            if part in self._moved:
                self._tail += blocks
            try:
                current.append(blocks)
            except StoreFull:
                raise
            except OSError as error:
                failure = self._latch.fail(StoreFailed(f"the journal of leases: {error}"))
                raise StoreFailed(str(failure)) from error

    def sync(self) -> None:
        """Make what was appended before the call durable. The first failure is final: StoreFailed."""
        with self._sync_guard:
            with self._guard:
                current = self._open_file()
                end = current.end
                if current.synced_end == end:
                    return
            self._sync(current)
            current.synced_end = end

    def _sync(self, file: _JournalFile) -> None:
        try:
            file.file.sync()
        except OSError as error:
            failure = self._latch.fail(
                StoreFailed(f"the journal of leases cannot be synced: {error}")
            )
            raise StoreFailed(str(failure)) from error

    # ---- a new generation

    def begin_generation(self) -> None:
        """Begin a file that will take the place of this one; ``write`` fills it, ``switch`` ends it.

        Raises StoreFull, and nothing has changed.
        """
        self._filesystem.make_directory(self._directory)
        path = self._path(self._generation + 1)
        temporary = path.with_name(path.name + TEMPORARY)
        with suppress(FileNotFoundError):
            self._filesystem.unlink(temporary)
        file = self._filesystem.create(temporary, 0, allocate=False)
        successor = _JournalFile(file, path)
        with self._guard:
            self._moved, self._tail = set(), []
            self._successor = successor
        try:
            self.write([(KEY, encode_key(self.key))])
        except BaseException:
            self.abandon()
            raise

    def write(self, blocks: list[tuple[int, bytes]]) -> None:
        """Write what is true of a part now to the new file, under whatever keeps the part as it is."""
        successor = self._successor
        assert successor is not None
        successor.reserve(sum(len(payload) for _, payload in blocks) + 64 * len(blocks))
        successor.append(blocks)

    def has_moved(self, part: Hashable) -> None:
        """From here on what is appended of a part is for the new file, too."""
        with self._guard:
            self._moved.add(part)

    def abandon(self) -> None:
        """Leave the new file, and go on with the old one."""
        with self._guard:
            successor, self._successor = self._successor, None
            self._moved, self._tail = set(), []
        if successor is not None:
            successor.file.close()
            with suppress(OSError):
                self._filesystem.unlink(successor.path.with_name(successor.path.name + TEMPORARY))

    def switch(self) -> None:
        """Let the new file take the old one's place; durable on return, and what was appended too.

        Raises StoreFull, and the old one goes on; StoreFailed, OSError.
        """
        successor = self._successor
        assert successor is not None
        self._sync(successor)
        with self._sync_guard, self._guard:
            self._latch.check()
            size = sum(len(payload) + 64 for _, payload in self._tail)
            successor.reserve(size + RESERVED_BYTES)
            successor.append(self._tail)
            self._sync(successor)
            successor.synced_end = successor.begin_size = successor.end
            temporary = successor.path.with_name(successor.path.name + TEMPORARY)
            try:
                self._filesystem.rename(temporary, successor.path)
                self._filesystem.sync_directory(self._directory)
            except OSError as error:  # which of the two a start finds is not known
                failure = self._latch.fail(StoreFailed(f"the journal of leases: {error}"))
                raise StoreFailed(str(failure)) from error
            former, self._current = self._current, successor
            self._successor = None
            self._generation += 1
            self._moved, self._tail = set(), []
        if former is not None:
            former.file.close()
            self._filesystem.unlink(former.path)
