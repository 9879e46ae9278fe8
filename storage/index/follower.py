"""From the commit log to index entries: the follower that puts every record's keys.

It works in a process of its own, so it has its own view of a log that another process is writing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.index.index_file import IndexFile, Int64s
from storage.kernels.columns import CHECK_COMMIT_OFFSET, SIZE, STORE_TIMESTAMP, new_rows
from storage.kernels.index.entries import KEYS_OF_A_RECORD_MAX, key_hashes
from storage.kernels.scan import scan_records
from storage.view.index.keys import KeyHasher
from storage.view.log.follower import LogFollower

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.files.mapped_file import ReadOnlyMappedFile
    from storage.view.log.walk import RecordRun

KEYS_MAX: Final = 4 * KEYS_OF_A_RECORD_MAX


class LogReader:
    """The commit log of a live store: lists the directory again when an offset is not found."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        self._files = ReadOnlyMappedFileQueue(
            filesystem, directory, file_size=0, mapped_files_max=4
        )

    def find(self, offset: int) -> ReadOnlyMappedFile | None:
        """Return the file that holds the byte at a commit offset."""
        file = self._files.find(offset)
        if file is None and self._files.refresh():
            file = self._files.find(offset)
        return file

    def next_start(self, offset: int) -> int | None:
        """Return the start of the first file after ``offset``."""
        start = self._files.next_start(offset)
        if start is None and self._files.refresh():
            start = self._files.next_start(offset)
        return start

    @property
    def first_offset(self) -> int:
        """Start of the oldest file."""
        return self._files.first_offset

    def record_at(self, commit_offset: int) -> tuple[int, int] | None:
        """Return ``(size, store_timestamp_ms)`` of the record there, None if there is no record."""
        file = self.find(commit_offset)
        if file is None:
            return None
        data = file.array[commit_offset - file.start_offset :]
        row = new_rows(1)
        count, _, _ = scan_records(data, 0, len(data), commit_offset, CHECK_COMMIT_OFFSET, row)
        return (int(row[0, SIZE]), int(row[0, STORE_TIMESTAMP])) if count else None

    def close(self) -> None:
        """Close the maps."""
        self._files.close()


class KeyTarget(Protocol):
    """What keys are put into; ``IndexDirectory`` is one."""

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> tuple[int, IndexFile | None]:
        """Put keys from ``start`` on; return the first key not put, and a file that was found full."""
        ...


class IndexFollower(LogFollower):
    """Puts the keys of every record it meets; a failed step goes on where it failed."""

    def __init__(
        self,
        files: LogReader,
        position: int,
        target: KeyTarget,
        *,
        on_filled: Callable[[IndexFile], None],
    ) -> None:
        super().__init__(files, position)
        self._target = target
        self._on_filled = on_filled
        self._hashes = np.empty(KEYS_MAX, np.int64)
        self._commit_offsets = np.empty(KEYS_MAX, np.int64)
        self._store_timestamps = np.empty(KEYS_MAX, np.int64)
        self._resume = (-1, 0, 0)  # begin offset, row, key within the keys hashed from that row

    @property
    def is_interrupted(self) -> bool:
        """Whether a run is only partly put, so that ``position`` does not say what is in."""
        return self._resume[0] >= 0

    def take(self, records: RecordRun) -> None:
        """Put the keys of a run; raises StoreFull, and is then to be called with the run again."""
        begin, row, key = self._resume
        if begin != records.begin_offset:
            row = key = 0
        while row < len(records.rows):
            count, next_row = key_hashes(
                records.data, records.rows, row, len(records.rows), records.data_offset,
                self._hashes, self._commit_offsets, self._store_timestamps,
            )  # fmt: skip
            while key < count:
                self._resume = (records.begin_offset, row, key)
                key, filled = self._target.put(
                    self._hashes, self._commit_offsets, self._store_timestamps, key, count
                )
                self._resume = (records.begin_offset, row, key)
                if filled is not None:
                    self._on_filled(filled)
            row, key = next_row, 0
        self._resume = (-1, 0, 0)


class KeysAfter:
    """Leaves out the first keys, which an older file has, and gives the others to a target."""

    def __init__(self, target: KeyTarget, skip: int) -> None:
        self._target = target
        self._skip = skip

    def put(
        self,
        hashes: Int64s,
        commit_offsets: Int64s,
        store_timestamps: Int64s,
        start: int,
        count: int,
    ) -> tuple[int, IndexFile | None]:
        """Put keys from ``start`` on; see ``KeyTarget.put``."""
        skip = self._skip
        while skip and start < count:
            skip -= int(hashes[start] >= 0)
            start += 1
        filled = None
        if start < count:
            start, filled = self._target.put(hashes, commit_offsets, store_timestamps, start, count)
        self._skip = skip  # now: with a full disk the same keys come again
        return start, filled


class _KeySeeker(LogFollower):
    """Looks whether any record in a range has a key."""

    def __init__(self, files: LogReader, position: int) -> None:
        super().__init__(files, position)
        self.found = False
        self._hasher = KeyHasher()

    def take(self, records: RecordRun) -> None:
        self.found = any(len(hashes) for hashes, _, _ in self._hasher.of(records))


def keys_in(files: LogReader, begin: int, end: int) -> bool:
    """Whether any record that starts in ``[begin, end)`` has a key to index."""
    seeker = _KeySeeker(files, begin)
    while not seeker.found and seeker.step(end):
        pass
    return seeker.found
