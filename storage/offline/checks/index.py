"""Index files: their lengths, what of the log they cover, which are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.findings import NOTE, WARNING, Finding
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.format.names import INDEX_NAME_LENGTH
from storage.index.consistency import index_gaps
from storage.index.follower import LogReader
from storage.view.index.damage import index_damage
from storage.view.index.index_file import IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.offline.opened import OfflineStore


def index(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the index."""
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    headers = []
    listed = list_index_files(disk, store.paths.index)
    yield from _lost_newest(store, max((number for number, _, _ in listed), default=0))
    for _, size, path in listed:
        if size != shape.file_size:
            yield Finding(
                severity=WARNING, kind=kinds.INDEX_FILE, file=f"index/{path.name}",
                message=(
                    f"has {size} bytes, not {shape.file_size}; the index is made again from the log"
                ),
            )  # fmt: skip
            continue
        file = disk.open(path, writable=False)
        headers.append(IndexHeader.decode(file.pread(HEADER_SIZE, 0)))
        file.close()
    yield from _damaged_files(store, disk, shape)
    log = LogReader(disk, store.paths.commit_log)
    for gap in index_gaps(log, headers, store.reader.log.min_offset):
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE_MISSING, file="index",
            message=(
                f"no file has the keys from commit offset {gap.begin} to {gap.end}; the indexer makes"
                " them again from the log"
            ),
            begin=gap.begin, end=gap.end,
        )  # fmt: skip
    log.close()
    yield from _end_of_index(store, headers)


def _damaged_files(store: OfflineStore, disk: FileSystem, shape: IndexShape) -> Iterator[Finding]:
    """Yield the files that are not as their checksums have them."""
    for each in index_damage(disk, store.paths, shape, current=store.durable.trusted):
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE, file=f"index/{each.file_name}",
            message=(
                f"{each.reason}: queries by key miss messages between commit offsets"
                f" {each.begin_commit_offset} and {each.end_commit_offset}; the indexer makes it"
                " again from the log"
            ),
            begin=each.begin_commit_offset, end=each.end_commit_offset,
        )  # fmt: skip


def _end_of_index(store: OfflineStore, headers: list[IndexHeader]) -> Iterator[Finding]:
    newest = max((header.end_commit_offset for header in headers), default=-1)
    reached = store.reader.index.end_offset
    if newest > store.recovered.end_offset and not store.is_in_use:
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


def _lost_newest(store: OfflineStore, newest_number: int) -> Iterator[Finding]:
    slot = store.durable_index
    ours = slot.present and slot.store_id == store.durable.store_id and store.durable.trusted
    if ours and newest_number < slot.file_name:
        yield Finding(
            severity=WARNING, kind=kinds.INDEX_FILE_MISSING,
            file=f"index/{slot.file_name:0{INDEX_NAME_LENGTH}d}",
            message=(
                f"is missing: keys up to commit offset {slot.indexed_offset} were in it; the indexer"
                " makes it again from the log"
            ),
        )  # fmt: skip
