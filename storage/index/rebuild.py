"""One index file rebuilt from the log, beside the others, whose place it then takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.index.follower import IndexFollower, LogReader
from storage.index.index_file import IndexFile

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.index.directory import IndexDirectory


class FileRebuild:
    """Rebuilds the file of a number, which is not the newest, a chunk of the log at a time.

    It ends where the file is full, or where the next file begins. Raises StoreFull, as ``step`` does.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        directory: IndexDirectory,
        log: LogReader,
        number: int,
        *,
        min_commit_offset: int,
        end_commit_offset: int,
    ) -> None:
        self.path = directory.path(number)
        self._directory = directory
        headers = directory.headers()
        self._end = end_commit_offset
        following = next((h for other, h in headers.items() if other > number), None)
        if following is not None and following.next_entry > 1:
            begin = following.begin_commit_offset
            own = headers.get(number)  # None: no row of the table names the file
            if own is None or own.end_commit_offset >= begin:  # both may have keys of one record
                begin = log.record_end(begin)
            self._end = min(end_commit_offset, begin)
        start = directory.start_of(number, min_commit_offset)
        directory.clear_rebuilds()
        self._file = IndexFile.create(
            filesystem,
            directory.checksums / self.path.name,
            directory.shape,
            seed_timestamp_ms=start.seed.end_timestamp_ms,
            seed_commit_offset=start.seed.end_commit_offset,
        )
        self._follower = IndexFollower(
            log, start.position, self._file.put_until_full, skip=start.skip
        )

    @property
    def number(self) -> int:
        """The name of the file as a number."""
        return self._file.number

    @property
    def position(self) -> int:
        """Up to where the log was read."""
        return self._follower.position

    def step(self) -> bool:
        """Read on by one chunk of the log; return whether there is more to do."""
        return self._follower.step(self._end) and not self._file.is_full

    def take_place(self) -> None:
        """Put the file in its place, with its checksum; durable on return. A file without a key goes."""
        if self._file.header.next_entry <= 1:
            self._directory.drop(self.number)
        else:
            self._file.sync()
            self._directory.put_in_place(self._file)
        self.close()

    def close(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._directory.clear_rebuilds()
