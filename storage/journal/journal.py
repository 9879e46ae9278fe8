"""A journal that is appended to, and replaced by a shorter one when it has grown long.

What ``append`` has returned for is in the page cache, so that a killed process loses nothing; what ``sync``
has returned for is on the disk. A prefix of the journal is what was true at a time.

Each replacement is a generation, a file of its own. It is written under a temporary name, and gets its own
when it is synced; the one before is removed then. So the newest file with a name was whole when it got it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

from storage.errors import StoreClosed, StoreFailed
from storage.format.journal import Block, encode_block
from storage.format.names import parse_file_name
from storage.workers import FailureLatch

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import File, FileSystem, ReadFileSystem

TEMPORARY: Final = ".tmp"
Blocks = list[tuple[int, bytes]]
"""Kinds and payloads."""


@dataclass(slots=True)
class JournalEnd:
    """Where the whole blocks of a generation end."""

    generation: int
    position: int = 0
    block_count: int = 0
    crc: int = 0

    def note(self, block: Block) -> None:
        """Take in the next whole block."""
        self.position, self.crc = block.end, block.crc
        self.block_count += 1

    def encoded(self, blocks: Blocks) -> bytes:
        """Return the bytes of the next blocks, after which it ends from here on."""
        data = b""
        for kind, payload in blocks:
            block, self.crc = encode_block(kind, self.block_count, payload, self.crc)
            self.block_count += 1
            data += block
        self.position += len(data)
        return data


def generations(filesystem: ReadFileSystem, directory: Path) -> list[tuple[int, Path]]:
    """Return the files of a journal, the newest first."""
    found = []
    for entry in filesystem.list_directory(directory):
        number = parse_file_name(entry.name)
        if number is not None and not entry.is_directory:
            found.append((number, directory / entry.name))
    return sorted(found, reverse=True)


def remove_others(filesystem: FileSystem, directory: Path, kept: int) -> None:
    """Remove former generations, and one that a stopped process has given no name yet."""
    for entry in filesystem.list_directory(directory):
        number = parse_file_name(entry.name.removesuffix(TEMPORARY))
        if number is not None and entry.name != f"{kept:020d}":
            with suppress(FileNotFoundError):
                filesystem.unlink(directory / entry.name)


class Journal:
    """``sync`` may be called from any thread beside the other methods, which the caller calls in turn.

    Its bytes are reserved ahead, so that writing them does not meet a full disk, and a sync has no metadata to
    write.
    """

    reserved_bytes = 1 << 20

    def __init__(self, filesystem: FileSystem, directory: Path, end: JournalEnd) -> None:
        """Go on after what is whole of a file; without blocks there is none, and ``replace`` begins it."""
        self._filesystem = filesystem
        self._directory = directory
        self._sync_guard = threading.Lock()
        self._latch = FailureLatch()
        self._generation = end.generation
        self._file: File | None = None
        if end.block_count:
            path = directory / f"{end.generation:020d}"
            self._go_on(filesystem.open(path, writable=True), end, synced_size=0)

    def _go_on(self, file: File, end: JournalEnd, *, synced_size: int) -> None:
        self._file, self._end = file, end
        self.size = end.position
        """Bytes of its blocks that are written."""
        self.begin_size = end.position
        """Bytes it had when it was begun, or opened."""
        self.synced_size = synced_size
        self._reserved = file.size
        self._unwritten = b""

    @property
    def failure(self) -> StoreFailed | None:
        """Why nothing more is written, or None."""
        return self._latch.failure

    def _opened(self) -> File:
        self._latch.check()
        if self._file is None:
            raise StoreClosed("the journal is closed")
        return self._file

    def _fail(self, error: OSError) -> NoReturn:
        raise StoreFailed(str(self._latch.fail(StoreFailed(f"the journal: {error}")))) from error

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be appended. Raises StoreFull with nothing changed, StoreFailed."""
        file = self._opened()
        if self._unwritten:
            self._write(file)
        needed = self.size + size
        if needed > self._reserved:
            until = -(-needed // self.reserved_bytes) * self.reserved_bytes
            file.allocate(self._reserved, until - self._reserved)
            self._reserved = until

    def append(self, blocks: Blocks) -> None:
        """Add blocks; they survive the process on return.

        Raises StoreFull, and then they are written with the next ones, before those; StoreFailed.
        """
        file = self._opened()
        self._unwritten += self._end.encoded(blocks)
        self._write(file)

    def _write(self, file: File) -> None:
        try:
            file.pwrite(self._unwritten, self.size)
        except OSError as error:
            self._fail(error)
        self.size += len(self._unwritten)
        self._reserved = max(self._reserved, self.size)
        self._unwritten = b""

    def sync(self) -> None:
        """Make what was appended before the call durable. The first failure is final: StoreFailed."""
        with self._sync_guard:
            file, size = self._opened(), self.size
            if self.synced_size == size:
                return
            try:
                file.sync()
            except OSError as error:
                self._fail(error)
            self.synced_size = size

    def replace(self, blocks: Blocks) -> None:
        """Begin a new file with blocks, and remove the one before; durable on return.

        Raises StoreFull or OSError, and the one before goes on; StoreFailed.
        """
        self._latch.check()
        self._generation += 1  # also after an error: its file may be there
        end = JournalEnd(self._generation)
        path = self._directory / f"{end.generation:020d}"
        temporary = path.with_name(path.name + TEMPORARY)
        self._filesystem.make_directory(self._directory)
        with suppress(FileNotFoundError):
            self._filesystem.unlink(temporary)
        file = self._filesystem.create(temporary, 0, allocate=False)
        try:
            data = end.encoded(blocks)
            file.allocate(0, len(data) + self.reserved_bytes)
            file.pwrite(data, 0)
            file.sync()
        except BaseException:
            file.close()
            with suppress(OSError):
                self._filesystem.unlink(temporary)
            raise
        with self._sync_guard:
            try:
                self._filesystem.rename(temporary, path)
                self._filesystem.sync_directory(self._directory)
            except OSError as error:  # which of the two a start finds is not known
                file.close()
                self._fail(error)
            self._let_go()
            self._go_on(file, end, synced_size=end.position)
        with suppress(OSError):
            remove_others(self._filesystem, self._directory, end.generation)

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def close(self) -> None:
        """Sync what was appended, and let go of the file. Raises StoreFailed, OSError."""
        try:
            if self._file is not None and self._latch.failure is None:
                self.sync()
        finally:
            self._let_go()
