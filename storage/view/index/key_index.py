"""The index files of a store, read: candidates for a query by key, newest first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.format import index as layout
from storage.message import UncoveredRange
from storage.view.index.checksums import missing_files, read_table
from storage.view.index.index_file import IndexFileView, IndexShape, list_index_files
from storage.view.index.shape import find_index_shape

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.files.filesystem import DirectoryEntry, FileSystem
    from storage.view.layout import StorePaths

LISTING_AGE_MAX_S: Final = 0.1  # of a listing that the indexer has changed nothing since


class IndexCursor(NamedTuple):
    """Where a walk through the files goes on: in file ``number`` from ``entry``; 0: its start."""

    number: int
    entry: int


class KeyCandidates(NamedTuple):
    """Commit offsets, newest first, where to go on, None at the end, and what was not covered."""

    commit_offsets: list[int]
    following: IndexCursor | None
    uncovered: list[UncoveredRange]


class IndexFiles(NamedTuple):
    """The files of one look, oldest first, and the ranges of those that should be there and are not."""

    by_number: Mapping[int, IndexFileView]
    missing: Mapping[int, UncoveredRange]

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
        files, missing = self
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


class KeyIndex:
    """Read access to ``index/``, which an indexer may write. Safe from several threads."""

    def __init__(
        self,
        filesystem: FileSystem,
        paths: StorePaths,
        likely: IndexShape,
        positions: Callable[[], CheckpointFile | None] = lambda: None,
    ) -> None:
        self._filesystem = filesystem
        self._paths = paths
        self._likely = likely
        self._positions = positions
        self._guard = threading.Lock()
        self._files = IndexFiles({}, {})
        self._shape = likely
        self._listed: list[DirectoryEntry] | None = None  # when the files were looked at last
        self._listed_s = 0.0
        self._session: tuple[bool, int] | None = None  # whether ours wrote the files, and which one
        self._word: int | None = None  # the indexer's then

    def look(self) -> IndexFiles:
        """Return the files as they are now; those of another size are not taken."""
        with self._guard:
            positions = self._positions()
            is_current = positions is not None and positions.indexer_is_current
            # A session begins with files that may have taken the place of others of their name.
            session = positions.indexer_session if positions is not None and is_current else 0
            # Read before the files: what the indexer does to them after that changes it again.
            word = positions.indexer_word if positions is not None and is_current else None
            began = positions is not None, session
            if not self._files.by_number or began != self._session:
                self._forget()
                self._shape = find_index_shape(self._filesystem, self._paths.index, self._likely)
                self._session = began
            elif word is not None and word == self._word and not self._is_old():
                return self._files
            self._list(positions)
            self._word, self._listed_s = word, time.monotonic()
            return self._files

    def _is_old(self) -> bool:
        """Return whether files that somebody else removed or made would be missed for too long."""
        return time.monotonic() - self._listed_s > LISTING_AGE_MAX_S

    def _list(self, positions: CheckpointFile | None) -> None:
        """Look for new and removed files."""
        entries = self._filesystem.list_directory(self._paths.index)
        if entries == self._listed:
            return
        fitting = [
            (number, path)
            for number, size, path in list_index_files(self._filesystem, self._paths.index)
            if size == self._shape.file_size
        ]
        files = {}
        for number, path in fitting:
            known = self._files.by_number.get(number)
            try:
                files[number] = known or IndexFileView.open(self._filesystem, path, self._shape)
            except FileNotFoundError:  # it has just gone
                continue
        # The table is read after the listing: the indexer removes a row before its file.
        self._files = IndexFiles(files, self._missing(list(files), positions))
        self._listed = entries if len(files) == len(fitting) else None

    def _missing(
        self, numbers: list[int], positions: CheckpointFile | None
    ) -> Mapping[int, UncoveredRange]:
        """Return the ranges of missing files; nothing where a broker was the last to write the index."""
        if positions is None:
            return {}
        slot = positions.durable.load_index()
        if not slot.present or slot.store_id != positions.durable.load().store_id:
            return {}
        rows = read_table(self._filesystem, self._paths.index_checksums)
        return missing_files(numbers, rows, slot)

    @property
    def end_offset(self) -> int:
        """Commit offset of the last indexed record, by the newest file; 0 without files."""
        files = list(self.look().by_number.values())
        return files[-1].header.end_commit_offset if files else 0

    def refresh(self) -> None:
        """Look at everything anew the next time."""
        with self._guard:
            self._forget()

    def _forget(self) -> None:
        self._files, self._listed = IndexFiles({}, {}), None

    def close(self) -> None:
        """Let go of every map."""
        with self._guard:
            for file in self._files.by_number.values():
                file.close()
            self._forget()
