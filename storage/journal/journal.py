"""A journal that is appended to, and replaced by a shorter one when it has grown long.

What ``append`` has returned for is in the page cache, so that a killed process loses nothing; what ``sync``
has returned for is on the disk. A prefix of the journal is what was true at a time.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from storage.errors import StoreClosed, StoreFailed, StoreFull
from storage.journal.journal_file import Blocks, JournalEnd, JournalFile
from storage.workers import FailureLatch

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem

RESERVED_BYTES: Final = 1 << 20


class Journal:
    """``sync`` may be called from any thread beside the other methods, which the caller calls in turn."""

    def __init__(self, filesystem: FileSystem, directory: Path, end: JournalEnd) -> None:
        """Go on after what is whole of a file; without blocks there is none, and ``replace`` begins it."""
        self._filesystem = filesystem
        self._directory = directory
        self._sync_guard = threading.Lock()
        self._latch = FailureLatch()
        self._generation = end.generation
        self._current: JournalFile | None = None
        if end.block_count:
            self._current = JournalFile.go_on(filesystem, directory, end, RESERVED_BYTES)

    @property
    def size(self) -> int:
        """Bytes of its blocks."""
        return 0 if self._current is None else self._current.end

    @property
    def begin_size(self) -> int:
        """Bytes it had when it was begun, or opened."""
        return 0 if self._current is None else self._current.begin_size

    @property
    def is_synced(self) -> bool:
        """Whether nothing was appended since the last sync."""
        current = self._current
        return current is None or current.synced_end == current.end

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing more is written, or None."""
        return self._latch.failure

    def _file(self) -> JournalFile:
        self._latch.check()
        if self._current is None:
            raise StoreClosed("the journal is closed")
        return self._current

    def _fail(self, error: OSError) -> StoreFailed:
        return StoreFailed(str(self._latch.fail(StoreFailed(f"the journal: {error}"))))

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be appended. Raises StoreFull with nothing changed, StoreFailed."""
        self._file().reserve(size)

    def append(self, blocks: Blocks) -> None:
        """Add blocks; they survive the process on return.

        Raises StoreFull, and then they are written with the next ones; StoreFailed.
        """
        try:
            self._file().append(blocks)
        except StoreFull:
            raise
        except OSError as error:
            raise self._fail(error) from error

    def sync(self) -> None:
        """Make what was appended before the call durable. The first failure is final: StoreFailed."""
        with self._sync_guard:
            current = self._file()
            end = current.end
            if current.synced_end == end:
                return
            try:
                current.sync()
            except OSError as error:
                raise self._fail(error) from error
            current.synced_end = end

    def replace(self, blocks: Blocks) -> None:
        """Begin a new file with blocks, and remove the one before; durable on return.

        Raises StoreFull, and the one before goes on; StoreFailed, OSError.
        """
        self._latch.check()
        file = JournalFile.create(
            self._filesystem, self._directory, self._generation + 1, RESERVED_BYTES
        )
        try:
            file.reserve(sum(len(payload) + 64 for _, payload in blocks) + RESERVED_BYTES)
            file.append(blocks)
            file.sync()
        except BaseException:
            file.discard()
            raise
        with self._sync_guard:
            try:
                file.publish()
            except OSError as error:  # which of the two a start finds is not known
                file.close()
                raise self._fail(error) from error
            former, self._current = self._current, file
            self._generation += 1
        if former is not None:
            former.remove()

    def close(self) -> None:
        """Sync what was appended, and let go of the file. Raises StoreFailed, OSError."""
        try:
            if self._current is not None and self._latch.failure is None:
                self.sync()
        finally:
            if self._current is not None:
                self._current.close()
                self._current = None
