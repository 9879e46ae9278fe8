"""Where indexing goes on, in index files of our own.

They are taken back to what the newest slot promises. Where the newest of them was lost, or the log
has lost what they hold, the slot does not tell: then ``go_back`` finds what is sure without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.format.index import IndexHeader
from storage.index.coverage import agrees, count_covering, covers_log
from storage.index.directory import IndexDirectory
from storage.index.follower import LogReader

if TYPE_CHECKING:
    from storage.checkpoint.durable_slots import DurableIndex


def resume(
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
    return go_back(
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
    if slot.file_name not in numbers or not agrees(log, header):
        return False
    kept = numbers.index(slot.file_name) + 1
    if not covers_log(log, directory.headers()[:kept], min_commit_offset):
        return False  # an older file is gone
    if kept < len(numbers):
        directory.drop_from(kept)
    last = directory.last
    is_untouched = slot.clean and last is not None and last.header_bytes == slot.file_header
    if not is_untouched:
        directory.truncate_last(header)
    return True


def go_back(
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
    indexed anew as a whole. Interrupted at any point, it does the same when it runs again.
    """
    kept = []
    for path, header in zip(directory.paths, directory.headers(), strict=True):
        if (
            int(path.name) >= file_name
            or header.end_commit_offset >= end_commit_offset
            or not agrees(log, header)
        ):
            break
        kept.append((path, header))
    kept = kept[: count_covering(log, [header for _, header in kept], min_commit_offset)]
    headers = [header for _, header in kept]
    directory.keep([path for path, _ in kept])
    last = headers[-1].end_commit_offset if kept else -1
    if last < min_commit_offset:
        return min_commit_offset

    def timestamp_of(commit_offset: int) -> int:
        record = log.record_at(commit_offset)
        return record[1] if record is not None else headers[-1].end_timestamp_ms

    directory.forget(last, timestamp_of)
    return last
