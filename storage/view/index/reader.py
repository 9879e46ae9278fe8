"""All index files of a store, read: candidates for a query by key, newest first."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.format import index as layout
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem


class IndexCursor(NamedTuple):
    """Where a walk through the files goes on: in file ``number`` from ``entry``; 0: its start."""

    number: int
    entry: int


class IndexReader:
    """The reading side, of a store that may be live: maps files read-only and never writes."""

    def __init__(self, filesystem: FileSystem, directory: Path, shape: IndexShape) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._shape = shape
        self._files: dict[int, IndexFileView] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look for new and removed files; files of another size are not taken."""
        listed = {
            number: path
            for number, size, path in list_index_files(self._filesystem, self._directory)
            if size == self._shape.file_size
        }
        files = {}
        for number, path in listed.items():
            with suppress(FileNotFoundError):
                files[number] = self._files.get(number) or IndexFileView.open(
                    self._filesystem, path, self._shape
                )
        self._files = files

    @property
    def files(self) -> list[IndexFileView]:
        """The files, oldest first."""
        return list(self._files.values())

    @property
    def numbers(self) -> Collection[int]:
        """The files' names as numbers."""
        return self._files.keys()

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        cursor: IndexCursor | None = None,
    ) -> tuple[list[int], IndexCursor | None]:
        """Return up to ``count_max`` commit offsets, newest first, and where to go on, None at the end.

        All that could match are found, some that do not may be among them: other keys of the same
        hash, and times up to a second (in a file's first entry more) off. The caller reads the
        records and keeps those that do. Repeated offsets are possible.
        """
        hashed = layout.key_hash(topic, key)
        offsets: list[int] = []
        files = self._files  # as of now: another thread may refresh
        for number in sorted(files, reverse=True):
            if cursor is not None and number > cursor.number:
                continue
            file = files[number]
            first_entry = cursor.entry if cursor is not None and number == cursor.number else 0
            found, next_entry = file.find(
                hashed,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(offsets),
                first_entry=first_entry,
            )
            offsets += found
            if next_entry:
                return offsets, IndexCursor(number, next_entry)
            if len(offsets) >= count_max:
                older = [other for other in files if other < number]
                return offsets, IndexCursor(max(older), 0) if older else None
        return offsets, None

    def close(self) -> None:
        """Let go of every map."""
        for file in self._files.values():
            file.close()
        self._files.clear()
