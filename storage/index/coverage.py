"""How index files and the log they were made from fit together: what they cover, and where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from storage.index.follower import LogReader, keys_in

if TYPE_CHECKING:
    from storage.format.index import IndexHeader


class IndexHole(NamedTuple):
    """A range of the log with keys that no index file has, before file number ``file`` of a list."""

    file: int
    begin: int
    end: int


def agrees(log: LogReader, header: IndexHeader) -> bool:
    """Whether the last record that a file holds still stands in the log where it stood."""
    if header.end_commit_offset == 0 and header.next_entry <= 1:
        return True
    if header.end_commit_offset < log.first_offset:
        return True
    record = log.record_at(header.end_commit_offset)
    return record is not None and record[1] == header.end_timestamp_ms


def record_end(log: LogReader, commit_offset: int) -> int:
    """Return the end of the record at ``commit_offset``, that offset itself where there is none."""
    record = log.record_at(commit_offset)
    return commit_offset + (record[0] if record is not None else 0)


def covers_log(log: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> bool:
    """Whether index files reach back to the log's start and have no hole between them."""
    return count_covering(log, headers, min_commit_offset) == len(headers)


def count_covering(log: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> int:
    """Return how many files, from the oldest on, have no hole before or between them."""
    return next((hole.file for hole in index_holes(log, headers, min_commit_offset)), len(headers))


def index_holes(
    log: LogReader, headers: list[IndexHeader], min_commit_offset: int
) -> Iterator[IndexHole]:
    """Yield the holes before and between index files; what lies behind the last is none."""
    covered = min_commit_offset
    for count, header in enumerate(headers):
        if header.next_entry > 1:
            begin = header.begin_commit_offset
            if covered < begin and keys_in(log, covered, begin):
                yield IndexHole(count, covered, begin)
            covered = max(covered, record_end(log, header.end_commit_offset))
