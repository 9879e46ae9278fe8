"""From the commit log to index entries: the follower that puts every record's keys.

It works in a process of its own, so it has its own view of a log that another process is writing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.files.mapped_file_queue import ReadOnlyMappedFileQueue
from storage.index.index_file import IndexKeys
from storage.kernels.columns import CHECK_COMMIT_OFFSET, SIZE, STORE_TIMESTAMP, new_rows
from storage.kernels.index import KEYS_OF_A_RECORD_MAX, key_hashes
from storage.kernels.scan import scan_records
from storage.view.log.follower import LogFollower
from storage.view.log.walk import RecordRun

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.files.mapped_file import ReadOnlyMappedFile
    from storage.format.index import IndexHeader

KEYS_MAX: Final = 4 * KEYS_OF_A_RECORD_MAX


class LogReader(ReadOnlyMappedFileQueue):
    """The commit log of a live store: lists the directory again when an offset is not found."""

    def __init__(self, filesystem: FileSystem, directory: Path) -> None:
        super().__init__(filesystem, directory, file_size=0, mapped_files_max=4)

    def find(self, offset: int) -> ReadOnlyMappedFile | None:
        """Return the file that holds the byte at a commit offset."""
        file = super().find(offset)
        return super().find(offset) if file is None and self.refresh() else file

    def next_start(self, offset: int) -> int | None:
        """Return the start of the first file after ``offset``."""
        start = super().next_start(offset)
        return super().next_start(offset) if start is None and self.refresh() else start

    def record_at(self, commit_offset: int) -> tuple[int, int] | None:
        """Return ``(size, store_timestamp_ms)`` of the record there, None if there is no record."""
        file = self.find(commit_offset)
        if file is None:
            return None
        data = file.array[commit_offset - file.start_offset :]
        row = new_rows(1)
        count, _, _ = scan_records(data, 0, len(data), commit_offset, CHECK_COMMIT_OFFSET, row)
        return (int(row[0, SIZE]), int(row[0, STORE_TIMESTAMP])) if count else None

    def record_end(self, commit_offset: int) -> int:
        """Return the end of the record at ``commit_offset``, that offset itself where there is no record."""
        record = self.record_at(commit_offset)
        return commit_offset + (record[0] if record is not None else 0)

    def confirms(self, header: IndexHeader) -> bool:
        """Whether the last record that an index file holds still stands in the log where it stood."""
        if header.end_commit_offset == 0 and header.next_entry <= 1:
            return True
        if header.end_commit_offset < self.first_offset:
            return True
        record = self.record_at(header.end_commit_offset)
        return record is not None and record[1] == header.end_timestamp_ms


Put = Callable[[IndexKeys, int, int], int]
"""Puts keys ``[start, count)``; returns the first key not put.

Raises StoreFull, and has put none then.
"""


class RunKeys:
    """Puts the keys of runs of records, in order; a run whose ``take`` failed is to be taken again.

    The first ``skip`` keys are left out, which an older file has.
    """

    def __init__(self, put: Put, *, skip: int = 0) -> None:
        self._put = put
        self._skip = skip
        self._keys = IndexKeys(*np.empty((3, KEYS_MAX), np.int64))
        self._resume = (-1, 0, 0)  # begin offset, row, key within the keys hashed from that row

    @property
    def is_interrupted(self) -> bool:
        """Whether a run is only partly put."""
        return self._resume[0] >= 0

    def take(self, records: RecordRun) -> None:
        """Put the keys of a run; raises StoreFull, and is then to be called with the run again."""
        begin, row, key = self._resume
        if begin != records.begin_offset:
            row = key = 0
        while row < len(records.rows):
            count, next_row = key_hashes(
                records.data, records.rows, row, len(records.rows), records.data_offset, *self._keys
            )
            while self._skip and key < count:
                self._skip -= int(self._keys.hashes[key] >= 0)
                key += 1
            while key < count:
                self._resume = (records.begin_offset, row, key)
                key = self._put(self._keys, key, count)
            row, key = next_row, 0
        self._resume = (-1, 0, 0)


class IndexFollower(LogFollower):
    """Puts the keys of every record it meets; a failed step goes on where it failed."""

    def __init__(self, files: LogReader, position: int, put: Put, *, skip: int = 0) -> None:
        super().__init__(files, position)
        self._keys = RunKeys(put, skip=skip)

    def take(self, records: RecordRun) -> None:
        """Put the keys of a run."""
        self._keys.take(records)

    @property
    def is_interrupted(self) -> bool:
        """Whether a run is only partly put, so that ``position`` does not say what is in."""
        return self._keys.is_interrupted
