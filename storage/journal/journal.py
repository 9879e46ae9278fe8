"""A journal of many parts, which go on while a new generation of it is written.

What ``append`` has returned for is in the page cache, so that a killed process loses nothing; what ``sync``
has returned for is on the disk. A prefix of the journal is what was true at a time.

A new generation is written beside the old one, from what is in memory then; what is appended meanwhile goes
to the old one, and to the new one where that does not have it already. It gets its name when it is synced,
and then the old one is removed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from storage.errors import StoreClosed, StoreFailed, StoreFull
from storage.journal.journal_file import Blocks, JournalEnd, JournalFile
from storage.workers import FailureLatch

if TYPE_CHECKING:
    from collections.abc import Hashable
    from pathlib import Path

    from storage.files.filesystem import FileSystem

RESERVED_BYTES: Final = 1 << 20


class Journal:
    """All methods may be called from any thread. Each generation begins with the blocks of ``head``."""

    def __init__(self, filesystem: FileSystem, directory: Path, head: Blocks) -> None:
        self._head = head
        self._filesystem = filesystem
        self._directory = directory
        self._guard = threading.Lock()
        self._sync_guard = threading.Lock()
        self._latch = FailureLatch()
        self._current: JournalFile | None = None
        self._generation = 0
        self._successor: JournalFile | None = None
        self._moved: set[Hashable] = set()
        self._tail: Blocks = []

    def begin(self, generation: int) -> None:
        """Begin an empty journal, of a generation after the one given; durable on return."""
        self._generation = generation
        self.begin_generation()
        try:
            self.switch()
        except BaseException:
            self.abandon()
            raise

    def go_on(self, end: JournalEnd) -> None:
        """Append to the file that was read, after what is whole of it."""
        self._generation = end.generation
        self._current = JournalFile.go_on(self._filesystem, self._directory, end, RESERVED_BYTES)

    def close(self) -> None:
        """Sync what was appended, and let go of the file. Raises StoreFailed, OSError."""
        try:
            if self._current is not None and self._latch.failure is None:
                self.sync()
        finally:
            with self._guard:
                for each in (self._current, self._successor):
                    if each is not None:
                        each.close()
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

    def _open_file(self) -> JournalFile:
        self._latch.check()
        if self._current is None:
            raise StoreClosed("the journal is closed")
        return self._current

    # ---- appending

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be appended. Raises StoreFull with nothing changed, StoreFailed."""
        with self._guard:
            self._open_file().reserve(size)

    def append(self, part: Hashable, blocks: Blocks) -> None:
        """Add blocks of one part of what is journalled; they survive the process on return.

        Raises StoreFull, and then they are written with the next ones; StoreFailed.
        """
        with self._guard:
            current = self._open_file()
            if part in self._moved:
                self._tail += blocks
            try:
                current.append(blocks)
            except StoreFull:
                raise
            except OSError as error:
                failure = self._latch.fail(StoreFailed(f"the journal: {error}"))
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

    def _sync(self, file: JournalFile) -> None:
        try:
            file.sync()
        except OSError as error:
            failure = self._latch.fail(StoreFailed(f"the journal cannot be synced: {error}"))
            raise StoreFailed(str(failure)) from error

    # ---- a new generation

    def begin_generation(self) -> None:
        """Begin a file that will take the place of this one; ``write`` fills it, ``switch`` ends it.

        Raises StoreFull, and nothing has changed.
        """
        successor = JournalFile.create(
            self._filesystem, self._directory, self._generation + 1, RESERVED_BYTES
        )
        with self._guard:
            self._moved, self._tail = set(), []
            self._successor = successor
        try:
            self.write(self._head)
        except BaseException:
            self.abandon()
            raise

    def write(self, blocks: Blocks) -> None:
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
            successor.discard()

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
            try:
                successor.publish()
            except OSError as error:  # which of the two a start finds is not known
                failure = self._latch.fail(StoreFailed(f"the journal: {error}"))
                raise StoreFailed(str(failure)) from error
            former, self._current = self._current, successor
            self._successor = None
            self._generation += 1
            self._moved, self._tail = set(), []
        if former is not None:
            former.remove()
