"""One generation of a journal: a file of blocks, and its name.

A generation is written under a temporary name, and gets its own when it is synced; the one before is removed
then. So the newest file with a name was whole when it got it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from storage.format.journal import Block, encode_block
from storage.format.names import parse_file_name

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


def generations(filesystem: ReadFileSystem, directory: Path) -> list[tuple[int, Path]]:
    """Return the files of a journal, the newest first."""
    found = []
    for entry in filesystem.list_directory(directory):
        number = parse_file_name(entry.name)
        if number is not None and not entry.is_directory:
            found.append((number, directory / entry.name))
    return sorted(found, reverse=True)


def remove_others(filesystem: FileSystem, directory: Path, kept: int) -> None:
    """Remove what a stopped process left: former generations, and one that had no name yet."""
    for entry in filesystem.list_directory(directory):
        number = parse_file_name(entry.name.removesuffix(TEMPORARY))
        if number is not None and entry.name != f"{kept:020d}":
            with suppress(FileNotFoundError):
                filesystem.unlink(directory / entry.name)


class JournalFile:
    """Appends blocks to one generation. The caller keeps others out.

    Its blocks are reserved ahead, so that writing one does not meet a full disk, and a sync of it has no metadata
    to write.
    """

    def __init__(
        self, filesystem: FileSystem, file: File, path: Path, end: JournalEnd, reserved_bytes: int
    ) -> None:
        self.end = end.position
        self.synced_end = 0
        self.begin_size = end.position  # what it was when it was made
        self._filesystem = filesystem
        self._file = file
        self._path = path
        self._block_count = end.block_count
        self._crc = end.crc
        self._reserved_bytes = reserved_bytes
        self._reserved = file.size
        self._unwritten = b""

    @classmethod
    def create(
        cls, filesystem: FileSystem, directory: Path, generation: int, reserved_bytes: int
    ) -> JournalFile:
        """Begin a generation, under its temporary name. Raises StoreFull, OSError."""
        filesystem.make_directory(directory)
        path = directory / f"{generation:020d}"
        temporary = path.with_name(path.name + TEMPORARY)
        with suppress(FileNotFoundError):
            filesystem.unlink(temporary)
        file = filesystem.create(temporary, 0, allocate=False)
        return cls(filesystem, file, path, JournalEnd(generation), reserved_bytes)

    @classmethod
    def go_on(
        cls, filesystem: FileSystem, directory: Path, end: JournalEnd, reserved_bytes: int
    ) -> JournalFile:
        """Append to a file that was read, after what is whole of it."""
        path = directory / f"{end.generation:020d}"
        return cls(filesystem, filesystem.open(path, writable=True), path, end, reserved_bytes)

    def reserve(self, size: int) -> None:
        """See to it that so many bytes can be written. Raises StoreFull with nothing changed."""
        if self._unwritten:
            self._write()
        needed = self.end + size
        if needed > self._reserved:
            until = -(-needed // self._reserved_bytes) * self._reserved_bytes
            self._file.allocate(self._reserved, until - self._reserved)
            self._reserved = until

    def append(self, blocks: Blocks) -> None:
        """Add blocks. After an error they are written with the next ones, before those."""
        for kind, payload in blocks:
            data, self._crc = encode_block(kind, self._block_count, payload, self._crc)
            self._block_count += 1
            self._unwritten += data
        self._write()

    def _write(self) -> None:
        self._file.pwrite(self._unwritten, self.end)
        self.end += len(self._unwritten)
        self._reserved = max(self._reserved, self.end)
        self._unwritten = b""

    def sync(self) -> None:
        """Make durable what was appended."""
        self._file.sync()

    def publish(self) -> None:
        """Give the file its name, after ``sync``; durable on return. After OSError a start may find it or not."""
        self.synced_end = self.begin_size = self.end
        self._filesystem.rename(self._path.with_name(self._path.name + TEMPORARY), self._path)
        self._filesystem.sync_directory(self._path.parent)

    def discard(self) -> None:
        """Close and remove a file that has no name yet."""
        self._file.close()
        with suppress(OSError):
            self._filesystem.unlink(self._path.with_name(self._path.name + TEMPORARY))

    def remove(self) -> None:
        """Close and remove a file whose successor has its name."""
        self._file.close()
        self._filesystem.unlink(self._path)

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
