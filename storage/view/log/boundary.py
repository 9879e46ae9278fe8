"""Where the next record begins, from anywhere in a file of the log: where it can be cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from storage.files.mapped_file_queue import FileEntry
from storage.format.record import Verdict, check_record
from storage.format.record_layout import (
    COMMIT_OFFSET_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_SIZE_MIN,
)
from storage.view.log.files import ListedLog

WINDOW: Final = 64 << 10
MAGICS: Final = (MAGIC_V1.to_bytes(4, "big"), MAGIC_V2.to_bytes(4, "big"))


class Searchable(Protocol):
    """Bytes to look into, as a map has them."""

    def find(self, wanted: bytes, begin: int, end: int, /) -> int:
        """Return the first position of ``wanted`` within ``[begin, end)``, -1 if it is not there."""
        ...

    def __getitem__(self, where: slice, /) -> bytes:
        """Return the bytes of a range."""
        ...


class LogFileBytes:
    """One file of the log as bytes to look into, by small reads."""

    def __init__(self, log: ListedLog, entry: FileEntry) -> None:
        self._file = log.filesystem.open(entry.path, writable=False)

    def find(self, wanted: bytes, begin: int, end: int, /) -> int:
        """Return the first position of ``wanted`` within ``[begin, end)``, -1 if it is not there."""
        found = self._file.pread(end - begin, begin).find(wanted)
        return found if found < 0 else begin + found

    def __getitem__(self, where: slice, /) -> bytes:
        return self._file.pread(where.stop - where.start, where.start)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def record_starts(log: ListedLog, entry: FileEntry, low: int, high: int, count: int) -> list[int]:
    """Return commit offsets that cut ``[low, high)`` of a file into about ``count`` equal parts.

    Each is where a record begins, ``low`` first and ``high`` last, and no two are the same. Raises
    FileNotFoundError.
    """
    starts = [low]
    if count > 1:
        data = LogFileBytes(log, entry)
        try:
            for cut in range(1, count):
                wanted = low + (high - low) * cut // count
                if wanted > starts[-1]:
                    found = _find(data, entry, wanted, high)
                    if starts[-1] < found < high:
                        starts.append(found)
        finally:
            data.close()
    return [*starts, high]


def next_record(log: ListedLog, commit_offset: int, end_offset: int) -> int:
    """Return where the first record at or after ``commit_offset`` begins; ``end_offset`` without one."""
    for entry in log.entries:
        if entry.end_offset <= commit_offset or entry.start_offset >= end_offset:
            continue
        until = min(entry.end_offset, end_offset)
        data = LogFileBytes(log, entry)
        try:
            found = _find(data, entry, max(commit_offset, entry.start_offset), until)
        finally:
            data.close()
        if found < until:
            return found
    return end_offset


def _find(data: Searchable, entry: FileEntry, begin_offset: int, end_offset: int) -> int:
    start = entry.start_offset
    return start + find_boundary(data, begin_offset - start, end_offset - start, start)


def find_boundary(data: Searchable, begin: int, end: int, data_offset: int) -> int:
    """Return the position of the first record at or after ``begin``, ``end`` if there is none before.

    ``data_offset`` is the commit offset of the first byte. Only a record that names its own place and
    has every checksum right counts, so magic bytes inside a body are passed over. Records are not
    decoded, one check a boundary.
    """
    window = begin
    while window < end:
        # Both magics within one window: one that never comes must not be looked for to the end.
        stop = min(window + WINDOW, end)
        found = sorted(
            at - MAGIC_POSITION
            for magic in MAGICS
            for at in _all_at(data, magic, window + MAGIC_POSITION, min(stop + 2 * len(magic), end))
        )
        for position in found:
            if _is_record(data, position, end, data_offset + position):
                return position
        window = stop
    return end


def _all_at(data: Searchable, magic: bytes, begin: int, end: int) -> Iterator[int]:
    at = data.find(magic, begin, end)
    while at >= 0:
        yield at
        at = data.find(magic, at + 1, end)


def _is_record(data: Searchable, position: int, end: int, commit_offset: int) -> bool:
    if position < 0 or position + RECORD_SIZE_MIN > end:
        return False
    named = data[position + COMMIT_OFFSET_POSITION : position + COMMIT_OFFSET_POSITION + 8]
    if int.from_bytes(named, "big", signed=True) != commit_offset:
        return False
    size = int.from_bytes(data[position : position + 4], "big", signed=True)
    record = data[position : min(position + max(size, 0), end)]
    return check_record(record, 0, commit_offset) is Verdict.GOOD
