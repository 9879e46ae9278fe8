"""What is kept of index files at a start, and from where the log is indexed on.

The newest of our files is taken back to what the newest slot of the checkpoint says is durable. Files that no
slot of ours is about, a broker's or another store's, are recovered as a broker does it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from storage.format.index import IndexHeader
from storage.index.directory import IndexDirectory, IndexStart
from storage.index.follower import LogReader
from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.view.index.keys import KeyHasher
from storage.view.log.commit_log import EVERYTHING
from storage.view.log.walk import RecordRun, walk_log

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.format.checkpoint import IndexerSlot

_LOG: Final = logging.getLogger(__name__)


def recover_from_slot(
    directory: IndexDirectory,
    log: LogReader,
    slot: IndexerSlot,
    *,
    min_commit_offset: int,
    end_commit_offset: int,
) -> IndexStart | None:
    """Take the newest file back to what the slot says; return where to index from, None if it is not ours.

    Where that cannot be, and where the log has lost what older files hold, the files before are kept, as
    far as the log was not changed below them.
    """
    newest = int(directory.paths[-1].name) if directory.paths else 0
    if newest > slot.file_name > 0 and directory.path(slot.file_name) not in directory.paths:
        return None  # a broker dropped ours and made its own
    headers = directory.headers()
    older = older_files(directory, log, slot.file_name, min_commit_offset, end_commit_offset)
    is_whole = older == [number for number in headers if number < slot.file_name]
    if is_whole and slot.indexed_offset <= end_commit_offset:
        if slot.file_name == 0:
            directory.keep([])
            return IndexStart(slot.indexed_offset)
        if _take_back(directory, log, slot, older, min_commit_offset):
            after = directory.start_of(slot.file_name + 1, min_commit_offset)
            # The file may be further on than the slot, and its last record may be half in.
            return (
                after if after.position >= slot.indexed_offset else IndexStart(slot.indexed_offset)
            )
    return start_after(directory, older, slot.file_name, min_commit_offset)


def _take_back(
    directory: IndexDirectory,
    log: LogReader,
    slot: IndexerSlot,
    older: list[int],
    min_commit_offset: int,
) -> bool:
    """Take the newest file back to the slot; return whether it could be."""
    path = directory.path(slot.file_name)
    header = IndexHeader.decode(slot.file_header)
    headers = directory.headers()
    covering = [*(headers[number] for number in older), header]
    if (
        path not in directory.paths
        or not log.confirms(header)
        or _count_covering(log, covering, min_commit_offset) < len(covering)
    ):
        return False
    directory.keep([*older, slot.file_name])
    if directory.take_back(slot.file_header, clean=slot.clean):
        return True
    _LOG.warning("index file %s is damaged; what it held is indexed again", path)
    return False


def older_files(
    directory: IndexDirectory,
    log: LogReader,
    file_name: int,
    min_commit_offset: int,
    end_commit_offset: int,
) -> list[int]:
    """Return the files before ``file_name`` up to the first that the log does not confirm, or misses one.

    The log is written in order, so a file whose last record stands there is right as a whole, if its bytes
    are. The scrub looks at those.
    """
    older: dict[int, IndexHeader] = {}
    for number, header in directory.headers().items():
        if (
            number >= file_name
            or header.end_commit_offset >= end_commit_offset
            or not log.confirms(header)
        ):
            break
        older[number] = header
    return list(older)[: _count_covering(log, older.values(), min_commit_offset)]


def start_after(
    directory: IndexDirectory, older: list[int], newest: int, min_commit_offset: int
) -> IndexStart:
    """Keep the files ``older``, but for missing or changed ones at the end; return where to index from.

    Interrupted at any point, it does the same when it runs again.
    """
    there = {int(path.name) for path in directory.paths}
    while older and not (older[-1] in there and directory.has_its_header(older[-1])):
        older = older[:-1]
    for number in sorted({*directory.headers(), newest} - {*older, *there, 0}):
        _LOG.warning(
            "index file %s is missing; what it held is indexed again", directory.path(number)
        )
    directory.keep(older)
    return directory.start_of(max(older, default=0) + 1, min_commit_offset)


def recover_foreign(
    directory: IndexDirectory,
    log: LogReader,
    *,
    min_commit_offset: int,
    end_commit_offset: int,
    index_timestamp_ms: int,
    unclean: bool,
) -> IndexStart:
    """Keep what is sure of index files that no slot is about; return where to index from.

    After an ``unclean`` end, files that end later than ``index_timestamp_ms`` (the checkpoint's byte 16) go, as
    with a broker: they were never known to be durable. Then the last record that is in them is indexed once
    more, again as with a broker. Files after one that goes are indexed again, too. So is a blank file after
    others: after it a broker indexes the whole log a second time.
    """
    directory.forget_changed()
    headers = directory.headers()
    kept: list[int] = []
    for number in older_files(directory, log, EVERYTHING, min_commit_offset, end_commit_offset):
        is_blank = headers[number].next_entry <= 1 and not headers[number].end_commit_offset
        if (unclean and headers[number].end_timestamp_ms > index_timestamp_ms) or (
            kept and is_blank
        ):
            break
        kept.append(number)
    start = start_after(directory, kept, 0, min_commit_offset)
    return start._replace(skip=0) if unclean else start


def _count_covering(log: LogReader, headers: Iterable[IndexHeader], min_commit_offset: int) -> int:
    """Return how many index files, from the oldest on, leave no key of the log out before or between them."""
    covered, count = min_commit_offset, 0
    for header in headers:
        if header.next_entry > 1:
            begin = header.begin_commit_offset
            if covered < begin and _has_keys(log, covered, begin):
                break
            covered = max(covered, log.record_end(header.end_commit_offset))
        count += 1
    return count


def _has_keys(log: LogReader, begin: int, end: int) -> bool:
    """Whether any record that starts in ``[begin, end)`` has a key to index."""
    hasher = KeyHasher()
    return any(
        len(hashes)
        for step in walk_log(log, begin, end, checks=CHECK_COMMIT_OFFSET)
        if isinstance(step, RecordRun)
        for hashes, _, _ in hasher.of(step)
    )
