"""Index files: their lengths and checksums, which are missing, and whether their entries are the log's keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.view.index.checksums import file_problem, missing_files, read_table
from storage.view.index.entries import open_index
from storage.view.index.index_file import IndexShape
from storage.view.index.keys import KeyHasher
from storage.view.index.log_comparison import is_like_the_log
from storage.view.log.parts import record_runs

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore
    from storage.view.log.commit_log import CommitLogView


def index(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the index.

    The entries of a file without a checksum are compared with the log where nobody has the store open.
    """
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    slot = store.durable_index
    is_ours = store.durable.trusted and slot.present and slot.store_id == store.durable.store_id
    rows = read_table(disk, store.paths.index_checksums)
    files = open_index(disk, store.paths.index, shape)
    for file in files:
        number = int(file.name)
        row, header = rows.get(number), file.header_bytes()
        may_grow = not is_ours or number >= slot.file_name
        if row is not None and row.header != header and may_grow:
            row = None  # it was put to since
        problem = file_problem(disk, file.path, file.size, shape, row)
        if problem:
            # The next start rebuilds a file that was cut; after a kill it takes the newest one back.
            is_for_a_start = file.size != shape.file_size or (may_grow and store.abort_found)
            yield Finding(
                severity=WARNING if is_for_a_start else DAMAGE,
                kind=kinds.INDEX_FILE, file=f"index/{file.name}",
                message=f"{problem}: queries by key may miss messages; the indexer rebuilds it from the log",
            )  # fmt: skip
        elif row is None and not store.is_in_use and not is_like_the_log(file, store.reader.log):
            yield Finding(
                severity=WARNING, kind=kinds.INDEX_ENTRIES, file=f"index/{file.name}",
                message="its entries are not the keys of the log",
            )  # fmt: skip
    numbers = [int(file.name) for file in files]
    for each in missing_files(numbers, rows, slot).values() if is_ours else ():
        begin, end = each.begin_commit_offset, each.end_commit_offset
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE_MISSING, file=f"index/{each.file_name}",
            message=(
                f"is missing: queries by key miss messages between commit offsets {begin} and {end};"
                " the indexer rebuilds it from the log"
            ),
            begin=begin, end=end,
        )  # fmt: skip
    yield from _end_of_index(store, [file.header().end_commit_offset for file in files])


def _end_of_index(store: OfflineStore, ends: list[int]) -> Iterator[Finding]:
    newest = max(ends, default=-1)
    reached = _last_key_after(store.reader.log, newest)
    if newest > store.walked.end_offset and not store.is_in_use:
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE, file="index",
            message=f"reaches to {newest}, after the end of the log",
        )  # fmt: skip
    elif newest < reached:
        yield Finding(
            severity=NOTE, kind=kinds.INDEX_BEHIND, file="index",
            message=f"on disk it reaches to {max(newest, 0)}, the log's last key is at {reached}",
            begin=max(newest, 0), end=reached,
        )  # fmt: skip


def _last_key_after(log: CommitLogView, commit_offset: int) -> int:
    """Return the commit offset of the last record with a key, from ``commit_offset`` on; -1 without one."""
    last, hasher = -1, KeyHasher()
    begin = max(commit_offset, log.min_offset)
    for run in record_runs(log, begin, log.end_offset, checks=CHECK_COMMIT_OFFSET):
        for _, offsets, _ in hasher.of(run):
            last = max(last, int(offsets.max(initial=-1)))
    return last
