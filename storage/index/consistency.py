"""Whether index files are consistent with the log they were made from: what they cover, and what not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from storage.index.follower import LogReader, keys_in

if TYPE_CHECKING:
    from storage.format.index import IndexHeader


class IndexGap(NamedTuple):
    """A range of the log with keys that no index file has, before file number ``file`` of a list."""

    file: int
    begin: int
    end: int


def agrees_with_log(log: LogReader, header: IndexHeader) -> bool:
    """Whether the last record that a file holds still stands in the log where it stood."""
    if header.end_commit_offset == 0 and header.next_entry <= 1:
        return True
    if header.end_commit_offset < log.first_offset:
        return True
    record = log.record_at(header.end_commit_offset)
    return record is not None and record[1] == header.end_timestamp_ms


def record_end(log: LogReader, commit_offset: int) -> int:
    """Return the end of the record at ``commit_offset``, that offset itself where there is no record."""
    record = log.record_at(commit_offset)
    return commit_offset + (record[0] if record is not None else 0)


def covers_log(log: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> bool:
    """Whether index files reach back to the log's start and have no gap between them."""
    return count_covering(log, headers, min_commit_offset) == len(headers)


def count_covering(log: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> int:
    """Return how many files, from the oldest on, have no gap before or between them."""
    return next((gap.file for gap in index_gaps(log, headers, min_commit_offset)), len(headers))


def index_gaps(
    log: LogReader, headers: list[IndexHeader], min_commit_offset: int
) -> Iterator[IndexGap]:
    """Yield the gaps before and between index files; what lies after the last is not one."""
    covered = min_commit_offset
    for count, header in enumerate(headers):
        if header.next_entry > 1:
            begin = header.begin_commit_offset
            if covered < begin and keys_in(log, covered, begin):
                yield IndexGap(count, covered, begin)
            covered = max(covered, record_end(log, header.end_commit_offset))
