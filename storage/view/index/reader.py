"""All index files of a store, read: candidates for a query by key, newest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.format import index as layout
from storage.format.names import INDEX_NAME_LENGTH
from storage.message import UncoveredRange
from storage.view.index.checksums import IndexChecksums
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import DirectoryEntry, FileSystem


NO_GAPS: Final[Mapping[int, UncoveredRange]] = MappingProxyType({})


class IndexCursor(NamedTuple):
    """Where a walk through the files goes on: in file ``number`` from ``entry``; 0: its start."""

    number: int
    entry: int


class KeyCandidates(NamedTuple):
    """Commit offsets, newest first, where to go on, None at the end, and what was not covered."""

    commit_offsets: list[int]
    following: IndexCursor | None
    uncovered: list[UncoveredRange]


class IndexListing(NamedTuple):
    """The files that there are, and those that are gone and have checksums left, by their numbers."""

    files: Mapping[int, IndexFileView]
    lost: Mapping[int, UncoveredRange]


class IndexReader:
    """The reading side, of a store that may be live: maps files read-only and never writes.

    With a directory of ``checksums``, what they do not confirm is not believed. Unless they are
    ``current`` (our indexer was the last to write the index), those of a file that a broker has put
    to since are left aside.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: Path,
        shape: IndexShape,
        *,
        checksums: Path | None = None,
        current: bool = False,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._shape = shape
        self._checksums = checksums
        self._current = current
        self._files: dict[int, IndexFileView] = {}
        self._lost: dict[int, UncoveredRange] = {}
        self._listing = IndexListing(self._files, self._lost)
        self._seen: list[DirectoryEntry] | None = None  # when the files were looked at last
        self.refresh()

    def refresh(self) -> None:
        """Look for new and removed files; files of another size are not taken."""
        entries = self._filesystem.list_directory(self._directory)
        if entries == self._seen:
            return
        # First: a file is there before its checksums are, and goes after them.
        noted = self._names_of_checksums()
        listed = list_index_files(self._filesystem, self._directory)
        fitting = [(number, path) for number, size, path in listed if size == self._shape.file_size]
        files: dict[int, IndexFileView] = {}
        for number, path in fitting:
            known = self._files.get(number)
            if known is None or known.checksums is None:
                known = self._open(path) or known
            if known is not None:
                files[number] = known
        lost = {}
        for number in noted if self._current else ():
            if number not in files and (what := self._lost_range(number)) is not None:
                lost[number] = what
        self._files, self._lost = files, lost
        self._listing = IndexListing(files, lost)
        is_whole = len(files) == len(fitting) and self._newest_is_known
        self._seen = entries if is_whole else None

    @property
    def _newest_is_known(self) -> bool:
        """Whether the newest file has its checksums, which it gets when it is there already."""
        if self._checksums is None or not self._current or not self._files:
            return True
        return self._files[max(self._files)].checksums is not None

    def _names_of_checksums(self) -> list[int]:
        if self._checksums is None:
            return []
        return [number for number, _, _ in list_index_files(self._filesystem, self._checksums)]

    def _open(self, path: Path) -> IndexFileView | None:
        """Open a file with its checksums; None if it has just gone."""
        try:
            file = IndexFileView.open(self._filesystem, path, self._shape)
        except FileNotFoundError:
            return None
        checksums = self._checksums_of(path.name)
        newest = checksums.newest() if checksums is not None else None
        if newest is not None and (self._current or newest.header == file.header_bytes):
            file.checksums = checksums
        return file

    def _lost_range(self, number: int) -> UncoveredRange | None:
        """Return what a file held that is gone; None if nothing is known of it any more."""
        checksums = self._checksums_of(f"{number:0{INDEX_NAME_LENGTH}d}")
        newest = checksums.newest() if checksums is not None else None
        if newest is None:
            return None
        return UncoveredRange(
            begin_commit_offset=newest.values.begin_commit_offset,
            end_commit_offset=newest.values.end_commit_offset + 1,
            file_name=f"{number:0{INDEX_NAME_LENGTH}d}",
            reason="is gone or has another size",
        )

    def _checksums_of(self, name: str) -> IndexChecksums | None:
        if self._checksums is None:
            return None
        return IndexChecksums.find(self._filesystem, self._checksums / name, self._shape)

    @property
    def files(self) -> list[IndexFileView]:
        """The files, oldest first."""
        return list(self._files.values())

    @property
    def listing(self) -> IndexListing:
        """What there is; the same object while it is the same."""
        return self._listing

    @property
    def numbers(self) -> Collection[int]:
        """The files' names as numbers."""
        return self._files.keys()

    @property
    def lost_numbers(self) -> Collection[int]:
        """The names of those that are gone, though their checksums are there: an indexer drops these first."""
        return self._lost.keys()

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        cursor: IndexCursor | None = None,
        gaps: Mapping[int, UncoveredRange] = NO_GAPS,
    ) -> KeyCandidates:
        """Return up to ``count_max`` commit offsets, newest first, and where to go on, None at the end.

        All that could match are found, some that do not may be among them: other keys of the same
        hash, and times up to a second (in a file's first entry more) off. The caller reads the
        records and keeps those that do. Repeated offsets are possible. ``gaps`` are what no file covers, by
        numbers between those of the files.
        """
        hashed = layout.key_hash(topic, key)
        offsets: list[int] = []
        uncovered: list[UncoveredRange] = []
        files = self._files  # as of now: another thread may refresh
        lost = {**self._lost, **{at: gap for at, gap in gaps.items() if at not in files}}
        for number in sorted(files.keys() | lost.keys(), reverse=True):
            if cursor is not None and number > cursor.number:
                continue
            if number in lost:
                uncovered.append(lost[number])
                continue
            file = files[number]
            first_entry = cursor.entry if cursor is not None and number == cursor.number else 0
            walk = file.find(
                hashed,
                begin_ms=begin_ms,
                end_ms=end_ms,
                count_max=count_max - len(offsets),
                first_entry=first_entry,
            )
            offsets += walk.commit_offsets
            if walk.is_damaged:
                begin, end = file.covered
                # Its checksums may be an old copy: it goes to where the next file begins.
                newer = min((other for other in files if other > number), default=None)
                uncovered.append(
                    UncoveredRange(
                        begin_commit_offset=begin,
                        end_commit_offset=end
                        if newer is None
                        else max(end, files[newer].covered[0] + 1),
                        file_name=file.path.name,
                        reason="is damaged",
                    )
                )
            if walk.next_entry:
                return KeyCandidates(offsets, IndexCursor(number, walk.next_entry), uncovered)
            if len(offsets) >= count_max:
                older = [other for other in files.keys() | lost.keys() if other < number]
                following = IndexCursor(max(older), 0) if older else None
                return KeyCandidates(offsets, following, uncovered)
        return KeyCandidates(offsets, None, uncovered)

    def close(self) -> None:
        """Let go of every map."""
        for file in self._files.values():
            file.close()
        self._files.clear()
