"""Index files: their lengths, what of the log they cover, which are gone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING

from storage import findings as kinds
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.index import HEADER_SIZE, IndexHeader
from storage.format.names import INDEX_NAME_LENGTH
from storage.index.consistency import index_gaps
from storage.index.follower import LogReader
from storage.view.index.damage import index_damage
from storage.view.index.index_file import IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.message import UncoveredRange
    from storage.offline.opened import OfflineStore


def index(store: OfflineStore, disk: FileSystem) -> Iterator[Finding]:
    """Yield what is wrong with the index."""
    shape = IndexShape(store.config.index_slot_count, store.config.index_entry_count)
    headers, sizes = [], {}
    for _, size, path in list_index_files(disk, store.paths.index):
        sizes[path.name] = size
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
    gone = []
    for each in index_damage(disk, store.paths, shape, current=store.durable.trusted):
        if each.file_name not in sizes:
            gone.append(each)
        if sizes.get(each.file_name, shape.file_size) == shape.file_size:
            yield _damaged(store, each, is_newest=each.file_name == max(sizes, default=""))
    if not gone:
        yield from _lost_newest(store, int(max(sizes, default="0")))
        yield from _gaps(store, disk, headers)
    yield from _end_of_index(store, headers)


def _damaged(store: OfflineStore, damage: UncoveredRange, *, is_newest: bool) -> Finding:
    """Return the finding for a file that is gone, or not as its checksums have it.

    After a stop that was not in order the start repairs the newest file without being asked.
    """
    begin, end = damage.begin_commit_offset, damage.end_commit_offset
    is_gone = damage.reason.startswith("is gone")
    return Finding(
        severity=WARNING if is_newest and store.abort_found else DAMAGE,
        kind=kinds.INDEX_FILE_MISSING if is_gone else kinds.INDEX_FILE,
        file=f"index/{damage.file_name}",
        message=(
            f"{damage.reason}: queries by key miss messages between commit offsets {begin} and {end};"
            " the indexer makes it again from the log"
        ),
        begin=begin, end=end,
    )  # fmt: skip


def _gaps(store: OfflineStore, disk: FileSystem, headers: list[IndexHeader]) -> Iterator[Finding]:
    """Yield what of the log no file has the keys of, though one after it is there."""
    with closing(LogReader(disk, store.paths.commit_log)) as log:
        for gap in index_gaps(log, headers, store.reader.log.min_offset):
            yield Finding(
                severity=WARNING, kind=kinds.INDEX_FILE_MISSING, file="index",
                message=(
                    f"no file has the keys from commit offset {gap.begin} to {gap.end}; the indexer"
                    " makes them again from the log"
                ),
                begin=gap.begin, end=gap.end,
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
