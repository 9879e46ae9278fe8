"""Index files: their lengths and checksums, which are missing, and whether their entries are the log's keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.kernels.columns import CHECK_COMMIT_OFFSET
from storage.view.index.checksums import file_problem, missing_files, read_table
from storage.view.index.entries import IndexEntries, open_index
from storage.view.index.index_file import IndexShape
from storage.view.index.keys import KeyHasher
from storage.view.index.log_comparison import is_like_the_log
from storage.view.log.commit_log import record_runs

if TYPE_CHECKING:
    from storage.checks.store import CheckedStore
    from storage.format.index_checksums import ChecksumRow
    from storage.view.log.commit_log import LogView


@dataclass(frozen=True, slots=True)
class IndexFileCheck:
    """What is to be looked at of one file, by whoever can read it and the log.

    ``row`` has its checksum, None where it may have been put to since. The entries of a file without one are
    compared with the log from ``compared_from`` on, unless that is None.
    """

    file: IndexEntries
    shape: IndexShape
    row: ChecksumRow | None
    is_for_a_start: bool
    compared_from: int | None

    @property
    def cost(self) -> int:
        """Bytes to read."""
        return self.file.size

    def finding(self, log: LogView) -> Finding | None:
        """Look at the file; return what is wrong with it."""
        name = f"index/{self.file.name}"
        problem = file_problem(
            self.file.filesystem, self.file.path, self.file.size, self.shape, self.row
        )
        if problem:
            return Finding(
                severity=WARNING if self.is_for_a_start else DAMAGE, kind=kinds.INDEX_FILE, file=name,
                message=f"{problem}: queries by key may miss messages; the indexer rebuilds it from the log",
            )  # fmt: skip
        begin = self.compared_from
        if self.row is not None or begin is None or is_like_the_log(self.file, log, begin):
            return None
        return Finding(
            severity=WARNING, kind=kinds.INDEX_ENTRIES, file=name,
            message="its entries are not the keys of the log",
        )  # fmt: skip


def index_file_checks(store: CheckedStore) -> list[IndexFileCheck]:
    """Return what is to be looked at of each file, oldest first."""
    shape = IndexShape(store.sizes.index_slot_count, store.sizes.index_entry_count)
    slot = store.durable_index
    rows = read_table(store.filesystem, store.paths.index_checksums)
    files = open_index(store.filesystem, store.paths.index, shape)
    found = []
    for number, file in enumerate(files):
        row = rows.get(int(file.name))
        may_grow = not _is_ours(store) or int(file.name) >= slot.file_name
        if row is not None and may_grow and row.header != file.header_bytes():
            row = None  # it was put to since
        # The next start rebuilds a file that was cut; after a kill it takes the newest one back.
        is_for_a_start = file.size != shape.file_size or (may_grow and store.abort_found)
        is_at_rest = store.is_settled or number < len(files) - 1
        compared_from = store.walked.min_offset if is_at_rest else None
        found.append(IndexFileCheck(file, shape, row, is_for_a_start, compared_from))
    return found


def _is_ours(store: CheckedStore) -> bool:
    slot = store.durable_index
    return store.durable.trusted and slot.present and slot.store_id == store.durable.store_id


def missing_index_files(store: CheckedStore, checks: Sequence[IndexFileCheck]) -> Iterator[Finding]:
    """Yield the files that should be there and are not; and what reaches beyond the log."""
    rows = read_table(store.filesystem, store.paths.index_checksums)
    numbers = [int(each.file.name) for each in checks]
    missing = missing_files(numbers, rows, store.durable_index) if _is_ours(store) else {}
    for each in missing.values():
        begin, end = each.begin_commit_offset, each.end_commit_offset
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE_MISSING, file=f"index/{each.file_name}",
            message=(
                f"is missing: queries by key miss messages between commit offsets {begin} and {end};"
                " the indexer rebuilds it from the log"
            ),
            begin=begin, end=end,
        )  # fmt: skip
    newest = _newest_offset(checks)
    if newest > store.walked.end_offset and store.is_settled:
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE, file="index",
            message=f"reaches to {newest}, after the end of the log",
        )  # fmt: skip


def _newest_offset(checks: Sequence[IndexFileCheck]) -> int:
    return max((each.file.header().end_commit_offset for each in checks), default=-1)


def index_behind(store: CheckedStore, checks: Sequence[IndexFileCheck]) -> Iterator[Finding]:
    """Say where the index ends if the log, which is read from there on, has later keys."""
    newest = _newest_offset(checks)
    reached = _last_key_after(store, newest)
    if newest < reached:
        yield Finding(
            severity=NOTE, kind=kinds.INDEX_BEHIND, file="index",
            message=f"on disk it reaches to {max(newest, 0)}, the log's last key is at {reached}",
            begin=max(newest, 0), end=reached,
        )  # fmt: skip


def _last_key_after(store: CheckedStore, commit_offset: int) -> int:
    """Return the commit offset of the last record with a key, from ``commit_offset`` on; -1 without one."""
    last, hasher = -1, KeyHasher()
    begin = max(commit_offset, store.walked.min_offset)
    for run in record_runs(store.log, begin, store.walked.end_offset, checks=CHECK_COMMIT_OFFSET):
        for _, offsets, _ in hasher.of(run):
            last = max(last, int(offsets.max(initial=-1)))
    return last
