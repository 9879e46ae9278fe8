"""What to keep of index files when the newest slot does not tell where to go on.

Files that no slot of ours vouches for, a broker's or another store's, are taken over. Our own are
gone back in when the newest of them was lost, or the log has lost what they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from storage.index_directory import IndexDirectory
from storage.index_file import IndexFile, IndexShape
from storage.index_follower import IndexFollower, LogReader, keys_in

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.format.index import IndexHeader
    from storage.layout import StorePaths


def _behind(files: LogReader, commit_offset: int) -> int:
    record = files.record_at(commit_offset)
    return commit_offset + (record[0] if record is not None else 0)


def agrees(files: LogReader, header: IndexHeader) -> bool:
    """Whether the last record that a file holds still stands in the log where it stood."""
    if header.end_commit_offset == 0 and header.next_entry <= 1:
        return True
    if header.end_commit_offset < files.first_offset:
        return True
    record = files.record_at(header.end_commit_offset)
    return record is not None and record[1] == header.end_timestamp_ms


def _is_blank(header: IndexHeader) -> bool:
    return header.next_entry <= 1 and not header.end_timestamp_ms and not header.end_commit_offset


def covers_log(files: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> bool:
    """Whether index files reach back to the log's start and have no hole between them."""
    return _covering(files, headers, min_commit_offset) == len(headers)


def _covering(files: LogReader, headers: list[IndexHeader], min_commit_offset: int) -> int:
    """Return how many files, from the oldest on, have no hole before or between them."""
    return next(
        (hole.file for hole in index_holes(files, headers, min_commit_offset)), len(headers)
    )


class IndexHole(NamedTuple):
    """A range of the log with keys that no index file has, before file number ``file`` of a list."""

    file: int
    begin: int
    end: int


def index_holes(
    files: LogReader, headers: list[IndexHeader], min_commit_offset: int
) -> Iterator[IndexHole]:
    """Yield the holes before and between index files; what lies behind the last is none."""
    covered = min_commit_offset
    for count, header in enumerate(headers):
        if header.next_entry > 1:
            begin = header.begin_commit_offset
            if covered < begin and keys_in(files, covered, begin):
                yield IndexHole(count, covered, begin)
            covered = max(covered, _behind(files, header.end_commit_offset))


def take_over(
    directory: IndexDirectory,
    files: LogReader,
    *,
    min_commit_offset: int,
    end_commit_offset: int,
    index_timestamp_ms: int,
    unclean: bool,
) -> int:
    """Decide what to keep of index files that we have no slot for; return where to index from.

    After an ``unclean`` end, files that end later than ``index_timestamp_ms`` (the checkpoint's
    byte 16) go, as with a broker: they were never known to be durable. Then the last record that
    is in them is indexed once more, again as with a broker. Where a broker would leave older keys
    unfindable, because the kept files begin late or leave a hole, all are made again instead, and
    so they are when one has the wrong size or covers what the log has no more. A blank file behind
    others, of whose creation a kill took the rest, goes too: behind it a broker indexes the whole
    log a second time.
    """
    misfits = bool(directory.misfits)
    directory.drop_misfits()
    files_found = list(zip(directory.paths, directory.headers(), strict=True))
    kept = [
        (path, header)
        for path, header in files_found
        if not unclean or header.end_timestamp_ms <= index_timestamp_ms
    ]
    if len(kept) > 1:
        kept = [(path, header) for path, header in kept if not _is_blank(header)]
    headers = [header for _, header in kept]
    if (
        misfits
        or not kept
        or headers[-1].end_commit_offset > end_commit_offset
        or not covers_log(files, headers, min_commit_offset)
    ):
        kept = []
    if len(kept) < len(files_found):
        directory.keep([path for path, _ in kept])
    if not kept:
        return min_commit_offset
    position = headers[-1].end_commit_offset
    if not unclean:
        position = _behind(files, position)
    return max(position, min_commit_offset)


def go_back(
    directory: IndexDirectory,
    files: LogReader,
    *,
    file_name: int,
    min_commit_offset: int,
    end_commit_offset: int,
) -> int:
    """Keep those of our files that are sure to be right; return where to index from.

    Sure are the files before ``file_name``, the slot's: they were synced when they were full. The
    log is written in order, so a file whose last record stands there is right as a whole. That
    record may have keys in the next file, which is gone: its entries are taken back, and it is
    indexed anew as a whole. Interrupted at any point, it does the same when it runs again.
    """
    kept = []
    for path, header in zip(directory.paths, directory.headers(), strict=True):
        if (
            int(path.name) >= file_name
            or header.end_commit_offset >= end_commit_offset
            or not agrees(files, header)
        ):
            break
        kept.append((path, header))
    kept = kept[: _covering(files, [header for _, header in kept], min_commit_offset)]
    headers = [header for _, header in kept]
    directory.keep([path for path, _ in kept])
    last = headers[-1].end_commit_offset if kept else -1
    if last < min_commit_offset:
        return min_commit_offset

    def timestamp_of(commit_offset: int) -> int:
        record = files.record_at(commit_offset)
        return record[1] if record is not None else headers[-1].end_timestamp_ms

    directory.forget(last, timestamp_of)
    return last


def catch_up(
    filesystem: FileSystem,
    paths: StorePaths,
    shape: IndexShape,
    *,
    end_commit_offset: int,
    index_timestamp_ms: int,
    unclean: bool,
    now_ms: Callable[[], int],
    new_name: Callable[[], str] | None = None,
) -> None:
    """Bring a broker's index files to cover the log up to ``end_commit_offset``; nothing is synced.

    For a directory that nobody has open, or a private view of one; arguments as of ``take_over``.
    """
    log = LogReader(filesystem, paths.commit_log)
    directory = IndexDirectory(filesystem, paths.index, shape, now_ms=now_ms, new_name=new_name)
    position = take_over(
        directory,
        log,
        min_commit_offset=log.first_offset,
        end_commit_offset=end_commit_offset,
        index_timestamp_ms=index_timestamp_ms,
        unclean=unclean,
    )
    follower = IndexFollower(log, position, directory, on_filled=IndexFile.close)
    while follower.step(end_commit_offset):
        pass
    directory.close()
    log.close()
