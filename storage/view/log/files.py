"""The files of a commit log as they were listed once, read by commit offset.

It works over any file system, so of a file behind a URL only what is asked for is fetched.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from storage.files.mapped_file_queue import FileEntry as FileEntry
from storage.files.mapped_file_queue import list_trimmed_files
from storage.format.record_layout import RECORD_SIZE_MIN
from storage.format.store_time import HEAD_SIZE, store_time_of
from storage.kernels.columns import STOP_END
from storage.kernels.lookup import check_one
from storage.view.log.parts import LogPart

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, Positions, ReadFileSystem


class WholeFile(NamedTuple):
    """A file of the log with all of its bytes."""

    array: ByteArray
    start_offset: int

    @property
    def end_offset(self) -> int:
        """Commit offset after the last byte."""
        return self.start_offset + len(self.array)


class ListedLog:
    """Files in order of offset; each ends where the next one starts, however long it is.

    They are ``LogFiles`` for a walk, which maps or fetches a file as a whole.
    """

    def __init__(self, filesystem: ReadFileSystem, directory: Path) -> None:
        self.filesystem = filesystem
        self.directory = directory
        self._whole: WholeFile | None = None

    @cached_property
    def entries(self) -> list[FileEntry]:
        """The files that hold anything."""
        return [file for file in list_trimmed_files(self.filesystem, self.directory) if file.size]

    @cached_property
    def _starts(self) -> list[int]:
        return [entry.start_offset for entry in self.entries]

    @property
    def start_offset(self) -> int:
        """Where the oldest file starts, 0 without files."""
        return self.entries[0].start_offset if self.entries else 0

    @property
    def end_offset(self) -> int:
        """Where the newest file ends, 0 without files."""
        return self.entries[-1].end_offset if self.entries else 0

    def entry_of(self, commit_offset: int) -> FileEntry | None:
        """Return the file that holds the byte at a commit offset."""
        number = bisect_right(self._starts, commit_offset) - 1
        if number < 0:
            return None
        entry = self.entries[number]
        return entry if commit_offset < entry.end_offset else None

    def read(self, commit_offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes, fewer where the file ends; none where it is gone."""
        entry = self.entry_of(commit_offset)
        if entry is None:
            return b""
        length = min(size, entry.end_offset - commit_offset)
        try:
            file = self.filesystem.open(entry.path, writable=False)
            try:
                return file.pread(length, commit_offset - entry.start_offset)
            finally:
                file.close()
        except FileNotFoundError:
            return b""

    def map(
        self, entry: FileEntry, begins: Positions = 0, ends: Positions | None = None
    ) -> ByteArray:
        """Return one file, at most as long as its entry; positions are the file's own.

        See ``ReadFileSystem.map_ranges``. Raises FileNotFoundError.
        """
        return self.filesystem.map_ranges(entry.path, begins, ends)[: entry.size]

    def record_time_ms(
        self, commit_offset: int, size: int | None = None, queue_offset: int = -1
    ) -> int:
        """Return when the record at a commit offset was stored; NO_TIME if no head of one is there.

        ``size`` is what a unit says of it, None where it is known from nowhere else. A head that names another
        queue offset is not its own, unless that is below 0.
        """
        head = self.read(commit_offset, HEAD_SIZE)
        named = int.from_bytes(head[:4], "big") if size is None else size
        return store_time_of(head, commit_offset, named, queue_offset)

    def record(self, commit_offset: int) -> bytes | None:
        """Return the intact record at a commit offset, None if there is none."""
        size = int.from_bytes(self.read(commit_offset, 4), "big", signed=True)
        if commit_offset < 0 or size < RECORD_SIZE_MIN:
            return None
        record = self.read(commit_offset, size)
        _, stop = check_one(np.frombuffer(record, np.uint8), 0, len(record), commit_offset)
        return record if stop == STOP_END else None

    def next_there(self, commit_offset: int) -> int | None:
        """Return where the log has bytes from ``commit_offset`` on; None after its last file."""
        ends = (
            max(commit_offset, entry.start_offset)
            for entry in self.entries
            if entry.end_offset > commit_offset
        )
        return next(ends, None)

    @property
    def generation(self) -> int:
        """The files stay those that were listed once."""
        return 0

    def parts(self, begin_offset: int, end_offset: int) -> Iterator[LogPart]:
        """Yield what there is of ``[begin_offset, end_offset)``, file by file; only that is fetched."""
        for entry in self.entries:
            begin, end = max(begin_offset, entry.start_offset), min(end_offset, entry.end_offset)
            if begin < end:
                data = self.map(entry, begin - entry.start_offset, end - entry.start_offset)
                yield LogPart(data, entry.start_offset, begin, end)

    def find(self, offset: int) -> WholeFile | None:
        """Return the file that holds the byte at a commit offset; None also if it is gone."""
        if self._whole is None or not self._whole.start_offset <= offset < self._whole.end_offset:
            entry = self.entry_of(offset)
            self._whole = None
            if entry is None:
                return None
            try:
                self._whole = WholeFile(self.map(entry), entry.start_offset)
            except FileNotFoundError:
                self._whole = WholeFile(np.empty(0, np.uint8), entry.start_offset)
        return self._whole if offset < self._whole.end_offset else None

    def next_start(self, offset: int) -> int | None:
        """Return where the first file after a commit offset starts, None if there is none."""
        number = bisect_right(self._starts, offset)
        return self._starts[number] if number < len(self._starts) else None
