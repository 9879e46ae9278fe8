"""What is kept of index files at a start, and from where the log is indexed on.

Files of our own are taken back to what the newest slot of the checkpoint says is durable. Where the
newest of them was lost, or the log has lost what they hold, ``recover_without_slot`` finds what is sure.
Files that no slot of ours is about, a broker's or another store's, are recovered as a broker does it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Final

from storage.format.index import IndexHeader
from storage.index.consistency import agrees_with_log, count_covering, covers_log, record_end
from storage.index.directory import IndexDirectory
from storage.index.follower import IndexFollower, LogReader
from storage.index.index_file import IndexFile
from storage.view.index.index_file import IndexShape

if TYPE_CHECKING:
    from storage.checkpoint.durable_slots import DurableIndex
    from storage.files.filesystem import FileSystem
    from storage.view.layout import StorePaths

_LOG: Final = logging.getLogger(__name__)


def recover_from_slot(
    directory: IndexDirectory,
    log: LogReader,
    slot: DurableIndex,
    *,
    min_commit_offset: int,
    end_commit_offset: int,
) -> int | None:
    """Take the files back to what is sure; return where to index from, None if they are not ours."""
    if directory.misfits:
        return None
    numbers = [int(path.name) for path in directory.paths]
    if slot.indexed_offset <= end_commit_offset and _take_back(
        directory, log, slot, min_commit_offset
    ):
        return slot.indexed_offset
    if slot.file_name not in numbers and numbers and numbers[-1] > slot.file_name:
        return None  # a broker dropped ours and made its own
    return recover_without_slot(
        directory,
        log,
        file_name=slot.file_name,
        min_commit_offset=min_commit_offset,
        end_commit_offset=end_commit_offset,
    )


def _take_back(
    directory: IndexDirectory, log: LogReader, slot: DurableIndex, min_commit_offset: int
) -> bool:
    """Take the files back to the slot; return whether they could be."""
    if slot.file_name == 0:
        directory.drop_from(0)
        return True
    numbers = [int(path.name) for path in directory.paths]
    header = IndexHeader.decode(slot.file_header)
    if slot.file_name not in numbers or not agrees_with_log(log, header):
        return False
    kept = numbers.index(slot.file_name) + 1
    if not covers_log(log, directory.headers()[:kept], min_commit_offset):
        return False  # an older file is gone
    if kept < len(numbers):
        directory.drop_from(kept)
    last = directory.last
    is_untouched = slot.clean and last is not None and last.header_bytes == slot.file_header
    if not is_untouched and last is not None:
        if last.entries_are_damaged(slot.file_header):
            _LOG.warning("index file %s is damaged; what it held is indexed again", last.path)
            return False
        directory.truncate_last(header)
    return True


def recover_without_slot(
    directory: IndexDirectory,
    log: LogReader,
    *,
    file_name: int,
    min_commit_offset: int,
    end_commit_offset: int,
) -> int:
    """Keep those of our files that are sure to be right; return where to index from.

    Sure are the files before ``file_name``, the slot's: they were synced when they were full. The
    log is written in order, so a file whose last record stands there is right as a whole. That
    record may have keys in the next file, which is gone: its entries are taken back, and it is
    indexed again as a whole. Interrupted at any point, it does the same when it runs again.
    """
    kept = []
    for path, header in zip(directory.paths, directory.headers(), strict=True):
        if (
            int(path.name) >= file_name
            or header.end_commit_offset >= end_commit_offset
            or not agrees_with_log(log, header)
        ):
            break
        kept.append((path, header))
    kept = kept[: count_covering(log, [header for _, header in kept], min_commit_offset)]
    directory.keep([path for path, _ in kept])
    if directory.last is not None and directory.last.is_damaged():
        _LOG.warning("index file %s is damaged; what it held is indexed again", kept[-1][0])
        kept.pop()
        return recover_without_slot(
            directory,
            log,
            file_name=directory.last.number,
            min_commit_offset=min_commit_offset,
            end_commit_offset=end_commit_offset,
        )
    headers = [header for _, header in kept]
    last = headers[-1].end_commit_offset if kept else -1
    if last < min_commit_offset:
        return min_commit_offset

    def timestamp_of(commit_offset: int) -> int:
        record = log.record_at(commit_offset)
        return record[1] if record is not None else headers[-1].end_timestamp_ms

    directory.forget(last, timestamp_of)
    return last


def _is_blank(header: IndexHeader) -> bool:
    return header.next_entry <= 1 and not header.end_timestamp_ms and not header.end_commit_offset


def recover_foreign(
    directory: IndexDirectory,
    log: LogReader,
    *,
    min_commit_offset: int,
    end_commit_offset: int,
    index_timestamp_ms: int,
    unclean: bool,
) -> int:
    """Keep what is sure of index files that no slot is about; return where to index from.

    After an ``unclean`` end, files that end later than ``index_timestamp_ms`` (the checkpoint's
    byte 16) go, as with a broker: they were never known to be durable. Then the last record that
    is in them is indexed once more, again as with a broker. Where a broker would leave older keys
    unfindable, because the kept files begin late or leave a gap, all are made again instead, and
    so they are when one has the wrong size or covers what the log has no more. A blank file after
    others, of whose creation a kill took the rest, goes too: after it a broker indexes the whole log
    a second time.
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

    For a directory that no process has open, or a private view of one; arguments as of ``recover_foreign``.
    """
    with (
        closing(LogReader(filesystem, paths.commit_log)) as log,
        closing(
            IndexDirectory(
                filesystem,
                paths.index,
                shape,
                checksums=paths.index_checksums,
                now_ms=now_ms,
                new_name=new_name,
            )
        ) as directory,
    ):
        position = recover_foreign(
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
