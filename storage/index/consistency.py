"""Whether index files are consistent with the log they were made from: what they cover, and what not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from storage.index.follower import LogReader, keys_in

if TYPE_CHECKING:
    from storage.format.index import IndexHeader


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


def count_covering(log: LogReader, headers: Iterable[IndexHeader], min_commit_offset: int) -> int:
    """Return how many index files, from the oldest on, leave no key of the log out before or between them."""
    covered, count = min_commit_offset, 0
    for header in headers:
        if header.next_entry > 1:
            begin = header.begin_commit_offset
            if covered < begin and keys_in(log, covered, begin):
                break
            covered = max(covered, record_end(log, header.end_commit_offset))
        count += 1
    return count
