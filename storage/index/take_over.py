"""What to keep of index files that no slot of ours vouches for: a broker's, or another store's."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from storage.index.coverage import covers_log, record_end
from storage.index.directory import IndexDirectory
from storage.index.follower import IndexFollower, LogReader
from storage.view.index_file import IndexFile, IndexShape

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.format.index import IndexHeader
    from storage.view.layout import StorePaths


def _is_blank(header: IndexHeader) -> bool:
    return header.next_entry <= 1 and not header.end_timestamp_ms and not header.end_commit_offset


def take_over(
    directory: IndexDirectory,
    log: LogReader,
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
        or not covers_log(log, headers, min_commit_offset)
    ):
        kept = []
    if len(kept) < len(files_found):
        directory.keep([path for path, _ in kept])
    if not kept:
        return min_commit_offset
    position = headers[-1].end_commit_offset
    if not unclean:
        position = record_end(log, position)
    return max(position, min_commit_offset)


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
    with (
        closing(LogReader(filesystem, paths.commit_log)) as log,
        closing(
            IndexDirectory(filesystem, paths.index, shape, now_ms=now_ms, new_name=new_name)
        ) as directory,
    ):
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
