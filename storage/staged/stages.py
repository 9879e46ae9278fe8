"""Stage files of a commit: written block by block, durable when sealed, read back checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from isal.isal_zlib import crc32

from storage.errors import DamagedStage
from storage.format.stage import (
    BLOCK_HEAD,
    HEADER,
    RECORDS,
    SEAL,
    StageHeader,
    StageSeal,
    safe_name,
    stage_prefix,
)

if TYPE_CHECKING:
    from storage.files.filesystem import File, FileSystem

DIRECTORY: Final = "staged"  # of a store
SUFFIX: Final = ".stage"
_UNSEALED: Final = "unsealed."  # no name of an attempt has a point
_JSON_SIZE_MAX: Final = 64 << 20


def stage_name(attempt: str) -> str:
    """Return the name of an attempt's file once it is sealed."""
    return safe_name(attempt) + SUFFIX


def is_sealed(name: str) -> bool:
    """Return whether a file name is one that a stage has once it is sealed."""
    return name.endswith(SUFFIX) and not name.startswith(_UNSEALED)


class StageWriter:
    """A stage file being written. Nothing of it counts before ``seal`` has returned.

    It gets its name when it is whole and durable: a file of that name that is not whole was damaged since.
    """

    def __init__(self, filesystem: FileSystem, directory: Path, header: StageHeader) -> None:
        """Create the file. Raises FileExistsError, StoreFull, OSError."""
        self._sealed_path = directory / stage_name(header.attempt)
        self.path = self._sealed_path.with_name(_UNSEALED + self._sealed_path.name)
        self.header = header
        self._filesystem = filesystem
        self._file: File | None = filesystem.create(self.path, 0, allocate=False)
        self._position = 0
        try:
            self._write(HEADER, header.encode())
        except BaseException:
            self.discard()
            raise

    def add(self, records: bytes | memoryview) -> None:
        """Write encoded records as one block; not durable. Raises StoreFull, OSError."""
        self._write(RECORDS, records)

    def seal(self, seal: StageSeal) -> Stage:
        """End the file and make it and its name durable. Raises StoreFull, OSError."""
        self._write(SEAL, seal.encode())
        file = self._file
        assert file is not None
        file.sync_all()
        self._filesystem.rename(self.path, self._sealed_path)
        self.path = self._sealed_path
        self._filesystem.sync_directory(self.path.parent)
        self._file = None
        file.close()
        return Stage(self._filesystem, self.path, self.header, seal)

    def discard(self) -> None:
        """Remove the file, if it was not sealed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            with suppress(OSError):
                self._filesystem.unlink(self.path)

    def _write(self, kind: bytes, data: bytes | memoryview) -> None:
        assert self._file is not None
        head = BLOCK_HEAD.pack(kind, len(data), crc32(data))
        self._file.pwrite(head, self._position)
        self._file.pwrite(data, self._position + len(head))
        self._position += len(head) + len(data)


@dataclass(frozen=True, slots=True)
class Stage:
    """A sealed stage file."""

    filesystem: FileSystem
    path: Path
    header: StageHeader
    seal: StageSeal

    @property
    def prefix(self) -> bytes:
        """What the unique keys of its records begin with."""
        header = self.header
        return stage_prefix(header.app_id, header.version, header.attempt).encode()

    def blocks(self) -> Iterator[bytes]:
        """Yield its blocks of records in order, each checked.

        Raises DamagedStage, also where the file is gone; StoreBusy or OSError where it cannot be read now.
        """
        # Read, not mapped: a page that cannot be read is an error then, and not a signal.
        try:
            file = self.filesystem.open(self.path, writable=False)
        except FileNotFoundError as error:
            raise DamagedStage(self.header.attempt, f"{self.path.name} is gone") from error
        try:
            position = byte_count = 0
            while len(head := file.pread(BLOCK_HEAD.size, position)) == BLOCK_HEAD.size:
                kind, length, crc = BLOCK_HEAD.unpack(head)
                position += BLOCK_HEAD.size
                block = file.pread(min(length, file.size), position)
                if len(block) < length or crc32(block) != crc:
                    break
                position += length
                if kind == RECORDS:
                    byte_count += length
                    yield block
                elif kind == SEAL and byte_count == self.seal.byte_count:
                    return
        finally:
            file.close()
        raise DamagedStage(self.header.attempt, f"{self.path.name} is damaged at {position}")

    def check(self) -> None:
        """Read all of it. Raises what ``blocks`` does."""
        for _ in self.blocks():
            pass


def read_stage(filesystem: FileSystem, path: Path) -> Stage | None:
    """Return the stage in a file; None if it is damaged, or there is no such file.

    Only its header and its seal are looked at. Raises OSError.
    """
    try:
        file = filesystem.open(path, writable=False)
    except FileNotFoundError:
        return None
    try:
        header = seal = None
        position, end = 0, file.size
        while position < end:
            head = file.pread(BLOCK_HEAD.size, position)
            if len(head) < BLOCK_HEAD.size:
                return None
            kind, length, crc = BLOCK_HEAD.unpack(head)
            position += BLOCK_HEAD.size
            if kind in (HEADER, SEAL) and length <= _JSON_SIZE_MAX:
                data = file.pread(length, position)
                if len(data) < length or crc32(data) != crc:
                    return None
                if kind == HEADER:
                    header = StageHeader.decode(data)
                else:
                    seal = StageSeal.decode(data)
            elif kind != RECORDS:
                return None
            position += length
        if header is None or seal is None or position != end:
            return None
        return Stage(filesystem, path, header, seal)
    except (ValueError, KeyError, TypeError):
        return None
    finally:
        file.close()
