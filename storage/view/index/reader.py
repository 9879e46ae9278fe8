"""All index files of a store, read: candidates for a query by key, newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from storage.format import index as layout
from storage.message import UncoveredRange
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import DirectoryEntry, FileSystem

Missing = Callable[[list[int]], Mapping[int, UncoveredRange]]


def _nothing_missing(_: list[int]) -> Mapping[int, UncoveredRange]:
    return {}


class IndexCursor(NamedTuple):
    """Where a walk through the files goes on: in file ``number`` from ``entry``; 0: its start."""

    number: int
    entry: int


class KeyCandidates(NamedTuple):
    """Commit offsets, newest first, where to go on, None at the end, and what was not covered."""

    commit_offsets: list[int]
    following: IndexCursor | None
    uncovered: list[UncoveredRange]


class IndexReader:
    """The reading side, of a store that may be live: maps files read-only and never writes.

    ``missing`` tells the ranges of the files that should be there, given the numbers of those that are.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        shape: IndexShape,
        *,
        missing: Missing = _nothing_missing,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._shape = shape
        self._missing_of = missing
        self._files: dict[int, IndexFileView] = {}
        self._missing: Mapping[int, UncoveredRange] = {}
        self._seen: list[DirectoryEntry] | None = None  # when the files were looked at last
        self.refresh()

    def refresh(self) -> None:
        """Look for new and removed files; files of another size are not taken."""
        entries = self._filesystem.list_directory(self._directory)
        if entries == self._seen:
            return
        listed = list_index_files(self._filesystem, self._directory)
        fitting = [(number, path) for number, size, path in listed if size == self._shape.file_size]
        files: dict[int, IndexFileView] = {}
        for number, path in fitting:
            known = self._files.get(number) or self._open(path)
            if known is not None:
                files[number] = known
        # The table is read after the listing: the indexer removes a row before its file.
        self._missing = self._missing_of(list(files))
        self._files = files
        self._seen = entries if len(files) == len(fitting) else None

    def _open(self, path: Path) -> IndexFileView | None:
        """Open a file; None if it has just gone."""
        try:
            return IndexFileView.open(self._filesystem, path, self._shape)
        except FileNotFoundError:
            return None

    @property
    def files(self) -> list[IndexFileView]:
        """The files, oldest first."""
        return list(self._files.values())

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        cursor: IndexCursor | None = None,
    ) -> KeyCandidates:
        """Return up to ``count_max`` commit offsets, newest first, and where to go on, None at the end.

        All that could match are found, some that do not may be among them: other keys of the same
        hash, and times up to a second (in a file's first entry more) off. The caller reads the
        records and keeps those that do. Repeated offsets are possible.
        """
        hashed = layout.key_hash(topic, key)
        offsets: list[int] = []
        uncovered: list[UncoveredRange] = []
        files, missing = self._files, self._missing  # as of now: another thread may refresh
        for number in sorted(files.keys() | missing.keys(), reverse=True):
            if cursor is not None and number > cursor.number:
                continue
            if number not in files:
                uncovered.append(missing[number])
                continue
            first_entry = cursor.entry if cursor is not None and number == cursor.number else 0
            walk = files[number].find(
                hashed,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(offsets),
                first_entry=first_entry,
            )
            offsets += walk.commit_offsets
            if walk.next_entry:
                return KeyCandidates(offsets, IndexCursor(number, walk.next_entry), uncovered)
            if len(offsets) >= count_max:
                older = [other for other in files.keys() | missing.keys() if other < number]
                following = IndexCursor(max(older), 0) if older else None
                return KeyCandidates(offsets, following, uncovered)
        return KeyCandidates(offsets, None, uncovered)

    def close(self) -> None:
        """Let go of every map."""
        for file in self._files.values():
            file.close()
        self._files.clear()
