"""Files named by their start offset, seen as one address space.

Files are found by one listing and mapped when first needed; at most ``mapped_files_max`` stay mapped,
the longest unused is unmapped first. A view that a caller holds stays valid after that.

The queue tolerates what crashes and people leave: a last file of the wrong or of zero length,
a lost middle file (``find`` returns None there), names that are no numbers (ignored).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from storage.files.mapped_file import MappedFile, ReadOnlyMappedFile
from storage.format.names import file_name, parse_file_name, without_intruders

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem, ReadFileSystem


class FileEntry(NamedTuple):
    """One file on disk: where it starts, how long it is, where it lies."""

    start_offset: int
    size: int
    path: Path

    @property
    def end_offset(self) -> int:
        """Where the byte after its last one lies."""
        return self.start_offset + self.size


AnyMappedFile = TypeVar("AnyMappedFile", MappedFile, ReadOnlyMappedFile)


def file_path(directory: Path, start_offset: int) -> Path:
    """Return the path of the file that starts at ``start_offset``."""
    return directory / file_name(start_offset)


def list_files(filesystem: ReadFileSystem, directory: Path) -> list[FileEntry]:
    """Return the directory's offset-named files in order of offset; others are left out."""
    entries = sorted(
        FileEntry(start, entry.size, directory / entry.name)
        for entry in filesystem.list_directory(directory)
        if not entry.is_directory and (start := parse_file_name(entry.name)) is not None
    )
    return [entries[place] for place in without_intruders([entry[:2] for entry in entries])]


def list_trimmed_files(filesystem: ReadFileSystem, directory: Path) -> list[FileEntry]:
    """Return the same files as ``list_files``, each as long as to where the next one starts at most."""
    entries = list_files(filesystem, directory)
    return [
        entry
        if following is None
        else entry._replace(size=min(entry.size, following - entry.start_offset))
        for entry, following in zip_longest(entries, [after.start_offset for after in entries[1:]])
    ]


class _MappedFiles(Generic[AnyMappedFile]):
    """What the writing and the reading queue share. Safe to call from several threads."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        *,
        file_size: int,
        mapped_files_max: int = 64,
    ) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self.file_size = file_size
        self._mapped_files_max = mapped_files_max
        self._guard = threading.RLock()
        self._entries: list[FileEntry] = []
        self._starts: list[int] = []
        self._mapped: OrderedDict[int, AnyMappedFile] = OrderedDict()
        self.refresh()

    def refresh(self) -> bool:
        """List the directory again; True if files came, went or changed length."""
        entries = list_files(self.filesystem, self.directory)
        with self._guard:
            changed = entries != self._entries
            if changed:
                sizes = {entry.start_offset: entry.size for entry in entries}
                for start, mapped in list(self._mapped.items()):
                    if sizes.get(start) != mapped.size:
                        del self._mapped[start]
                self._set_entries(entries)
            return changed

    def _set_entries(self, entries: list[FileEntry]) -> None:
        self._entries = entries
        self._starts = [entry.start_offset for entry in entries]

    @property
    def entries(self) -> list[FileEntry]:
        """The files as last listed, in order of offset."""
        with self._guard:
            return list(self._entries)

    @property
    def first_offset(self) -> int:
        """Start of the oldest file; 0 if there is none."""
        with self._guard:
            return self._starts[0] if self._starts else 0

    @property
    def end_offset(self) -> int:
        """First offset after the newest file; 0 if there is none."""
        with self._guard:
            return self._entries[-1].start_offset + self._entries[-1].size if self._entries else 0

    def find(self, offset: int) -> AnyMappedFile | None:
        """Return the file that holds the byte at ``offset``, mapping it if need be.

        None outside the files, in the hole of a lost one, and when the file has just been deleted.
        """
        with self._guard:
            index = bisect_right(self._starts, offset) - 1
            if index < 0 or offset < 0:
                return None
            entry = self._entries[index]
            if offset >= entry.start_offset + entry.size:
                return None
            mapped = self._mapped.get(entry.start_offset)
            if mapped is None:
                try:
                    mapped = self._open(entry)
                except FileNotFoundError:
                    return None
                self._mapped[entry.start_offset] = mapped
                self._let_go()
            else:
                self._mapped.move_to_end(entry.start_offset)
            return mapped if offset < mapped.end_offset else None

    def next_start(self, offset: int) -> int | None:
        """Return the start of the first file after ``offset``, or None; steps over lost files."""
        with self._guard:
            index = bisect_right(self._starts, offset)
            return self._starts[index] if index < len(self._starts) else None

    def close(self) -> None:
        """Let go of every map."""
        with self._guard:
            for mapped in self._mapped.values():
                mapped.close()
            self._mapped.clear()
            self._set_entries([])

    def _open(self, entry: FileEntry) -> AnyMappedFile:
        raise NotImplementedError

    @staticmethod
    def _may_let_go(_: AnyMappedFile) -> bool:
        return True

    def _let_go(self) -> None:
        surplus = len(self._mapped) - self._mapped_files_max
        for start in list(self._mapped)[:-1]:
            if surplus <= 0:
                break
            if self._may_let_go(self._mapped[start]):
                del self._mapped[start]
                surplus -= 1


class ReadOnlyMappedFileQueue(_MappedFiles[ReadOnlyMappedFile]):
    """Files of another owner, which come and go; ``refresh`` when an offset is not found."""

    def _open(self, entry: FileEntry) -> ReadOnlyMappedFile:
        return ReadOnlyMappedFile.open(self.filesystem, entry.path, start_offset=entry.start_offset)


class MappedFileQueue(_MappedFiles[MappedFile]):
    """Files that this process alone writes."""

    def _open(self, entry: FileEntry) -> MappedFile:
        mapped = MappedFile.open(self.filesystem, entry.path, start_offset=entry.start_offset)
        # Only the newest files are ever appended to, and those were handed to `add` or to
        # `set_positions`; one that is mapped again has long been full and flushed.
        mapped.set_positions(mapped.size)
        return mapped

    @staticmethod
    def _may_let_go(mapped: MappedFile) -> bool:
        return mapped.flushed_position == mapped.size

    def add(self, mapped: MappedFile) -> None:
        """Take a new last file in. Raises ValueError unless it starts at the end or after it."""
        with self._guard:
            if self._entries and mapped.start_offset < self.end_offset:
                raise ValueError(f"{mapped.path} starts before the end {self.end_offset}")
            entry = FileEntry(mapped.start_offset, mapped.size, mapped.path)
            self._set_entries([*self._entries, entry])
            self._mapped[mapped.start_offset] = mapped
            self._let_go()

    def create(self, start_offset: int) -> MappedFile:
        """Create, take in and return the file at ``start_offset``; durable. Raises StoreFull."""
        self.filesystem.make_directory(self.directory)
        mapped = MappedFile.create(
            self.filesystem,
            file_path(self.directory, start_offset),
            size=self.file_size,
            start_offset=start_offset,
        )
        self.add(mapped)
        return mapped

    def extend(self, start_offset: int, size: int) -> MappedFile:
        """Lengthen a short (or zero-length) file with allocated zeros; durable. Recovery only."""
        with self._guard:
            entry = next(e for e in self._entries if e.start_offset == start_offset)
            self._mapped.pop(start_offset, None)
            file = self.filesystem.open(entry.path, writable=True)
            file.allocate(0, size)
            file.sync_all()
            mapped = MappedFile(file, file.map(writable=True), start_offset)
            self._set_entries([e._replace(size=size) if e is entry else e for e in self._entries])
            self._mapped[start_offset] = mapped
            return mapped

    def forget(self, start_offset: int) -> None:
        """Take one file out; it stays on disk, for the caller to unlink. Views of it stay good."""
        with self._guard:
            self._mapped.pop(start_offset, None)
            self._set_entries([e for e in self._entries if e.start_offset != start_offset])

    def remove(self, start_offset: int) -> None:
        """Unlink one file; views of it stay good. Durable with ``sync_directory``."""
        with self._guard:
            for entry in self._entries:
                if entry.start_offset == start_offset:
                    with suppress(FileNotFoundError):
                        self.filesystem.unlink(entry.path)
            self.forget(start_offset)

    def remove_from(self, offset: int) -> list[FileEntry]:
        """Unlink every file that starts at or after ``offset``, newest first; durable on return."""
        with self._guard:
            removed = [entry for entry in self._entries if entry.start_offset >= offset]
            for entry in reversed(removed):
                self.remove(entry.start_offset)
            if removed:
                self.filesystem.sync_directory(self.directory)
            return removed
