"""One index file made again from the log beside the others: to replace it, or to compare it with."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.format.index import IndexHeader, entry_position
from storage.index.consistency import record_end
from storage.index.follower import IndexFollower, LogReader
from storage.index.index_file import IndexFile, Int64s
from storage.view.index.index_file import IndexFileView

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.index.directory import IndexDirectory

REBUILT: Final = "rebuilt"  # below the directory of checksums, which no broker looks into


class RebuiltFile:
    """Takes the keys of one file, and leaves out those after its last."""

    def __init__(self, file: IndexFile, skip: int) -> None:
        self.file = file
        self.is_full = False
        self._skip = skip

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> tuple[int, IndexFile | None]:
        """Put keys from ``start`` on; see ``IndexDirectory.put``."""
        skip = self._skip
        while skip and start < count:
            skip -= int(hashes[start] >= 0)
            start += 1
        if start < count and not self.is_full:
            start = self.file.put(hashes, commit_offsets, store_timestamps, start, count)
            self.is_full = start < count
        self._skip = skip  # now: with a full disk the same keys come again
        return count, None


class FileRebuild:
    """Makes file ``place`` of a directory again, up to ``end_commit_offset``, a chunk at a time."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: IndexDirectory,
        log: LogReader,
        place: int,
        *,
        min_commit_offset: int,
        end_commit_offset: int,
    ) -> None:
        self.path = directory.paths[place]
        self._filesystem = filesystem
        self._directory = directory
        headers = directory.noted_headers()
        self._expected = headers[place]
        self._end = end_commit_offset
        if place + 1 < len(headers) and headers[place + 1].next_entry > 1:
            following = headers[place + 1].begin_commit_offset
            if self._expected.end_commit_offset >= following:  # both have keys of one record
                following = record_end(log, following)
            self._end = min(end_commit_offset, following)
        seed = headers[place - 1] if place else IndexHeader()
        begin = max(seed.end_commit_offset, min_commit_offset)
        put = 0
        for before in reversed(range(place)) if begin == seed.end_commit_offset else ():
            at_end = directory.entries_at_end(before, begin)
            put += at_end
            if at_end < headers[before].next_entry - 1:
                break
        self._home = directory.checksums / REBUILT
        clear(filesystem, self._home)
        filesystem.make_directory(self._home / REBUILT)
        self._file = IndexFile.create(
            filesystem,
            self._home / self.path.name,
            directory.shape,
            checksum_path=self._home / REBUILT / self.path.name,
            seed_timestamp_ms=seed.end_timestamp_ms,
            seed_commit_offset=seed.end_commit_offset,
        )
        self._target = RebuiltFile(self._file, put)
        self._follower = IndexFollower(log, begin, self._target, on_filled=IndexFile.close)

    @property
    def position(self) -> int:
        """Up to where the log was read."""
        return self._follower.position

    def step(self) -> bool:
        """Read on by one chunk of the log; return whether there is more to do. Raises StoreFull."""
        return self._follower.step(self._end) and not self._target.is_full

    def is_like(self, found: IndexFileView) -> bool:
        """Whether a file had all these entries, and no others, when this one was begun."""
        mine = self._file.header
        begin = entry_position(self._file.shape.slot_count, 1)
        end = entry_position(self._file.shape.slot_count, mine.next_entry)
        same = np.array_equal(self._file.data(begin, end), found.data(begin, end))
        return same and mine == self._expected

    def take_place(self) -> None:
        """Put the new file in the place of the old; durable on return.

        At no moment is the old file believed: between the two renames its checksums are held against
        the new one, which has the same bytes, or is made again. What the log has nothing of any more
        goes.
        """
        if self._file.header.next_entry <= 1:
            self._directory.drop(self.path)
            self.close()
            return
        self._file.sync()
        checksums = self._directory.checksums / self.path.name
        self._filesystem.rename(self._home / self.path.name, self.path)
        self._filesystem.sync_directory(self.path.parent)
        self._filesystem.rename(self._home / REBUILT / self.path.name, checksums)
        self._filesystem.sync_directory(checksums.parent)
        self.close()

    def close(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        clear(self._filesystem, self._home)


def clear(filesystem: FileSystem, home: Path) -> None:
    """Remove what a rebuild has left that did not come to its end."""
    for directory in (home / REBUILT, home):
        for entry in filesystem.list_directory(directory):
            if not entry.is_directory:
                with suppress(FileNotFoundError):
                    filesystem.unlink(directory / entry.name)
