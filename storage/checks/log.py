"""The commit log: its files, damage between records, and what lies after its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from storage import findings as kinds
from storage.checkpoint.positions import CheckpointFile, Role
from storage.checkpoint.trust import kept_from
from storage.files.filesystem import FileSystem
from storage.files.mapped_file_queue import FileEntry, list_files
from storage.findings import DAMAGE, NOTE, WARNING, Finding
from storage.format.names import file_name, parse_file_name
from storage.format.record_layout import BLANK_SIZE, MAGIC_BLANK

if TYPE_CHECKING:
    from storage.checks.store import CheckedStore


def log_files(store: CheckedStore) -> Iterator[Finding]:
    """Yield what is wrong with the files' names, order and lengths."""
    directory, file_size = store.paths.commit_log, store.sizes.commit_log_file_size
    for entry in store.filesystem.list_directory(directory):
        if not entry.is_directory and parse_file_name(entry.name) is None:
            yield Finding(
                severity=WARNING, kind=kinds.LOG_FILE_FOREIGN, file=f"commitlog/{entry.name}",
                message="is not a commit log file; a broker refuses it",
            )  # fmt: skip
    following: int | None = None
    files = list_files(store.filesystem, directory)
    yield from _missing_begin(store, files)
    for file in files:
        name = f"commitlog/{file.path.name}"
        if following is not None and file.start_offset != following:
            yield Finding(
                severity=DAMAGE, kind=kinds.LOG_FILE_MISSING, file=f"commitlog/{file_name(following)}",
                message=f"is missing: commit offsets [{following}, {file.start_offset}) are in no file",
                begin=following, end=file.start_offset,
            )  # fmt: skip
        if file.size != file_size:
            last = file is files[-1]
            yield Finding(
                severity=WARNING if last else DAMAGE, kind=kinds.LOG_FILE_LENGTH, file=name,
                message=f"has {file.size} bytes, not {file_size}",
            )  # fmt: skip
        following = file.start_offset + file_size
    yield from _missing_end(store, following or 0)


def _missing_begin(store: CheckedStore, files: list[FileEntry]) -> Iterator[Finding]:
    """Name what lies before the oldest file and was not deleted by retention; the page is read after the names."""
    if store.view.location.is_url:
        return
    try:
        positions = CheckpointFile.open(FileSystem(), store.paths.checkpoint, Role.READER)
    except FileNotFoundError:
        return
    begin = kept_from(positions, store.walked.records_end)
    positions.close()
    if begin is not None and files and begin < files[0].start_offset:
        end = files[0].start_offset
        yield Finding(
            severity=DAMAGE, kind=kinds.LOG_FILE_MISSING, file=f"commitlog/{file_name(begin)}",
            message=f"is missing: the log began at {begin}, and its oldest file begins at {end}",
            begin=begin, end=end,
        )  # fmt: skip


def _missing_end(store: CheckedStore, files_end: int) -> Iterator[Finding]:
    """Name what the checkpoint says is durable and no file holds."""
    flushed_offset = store.durable.flushed_offset
    if flushed_offset > files_end:
        size = store.sizes.commit_log_file_size
        end = flushed_offset + -flushed_offset % size
        yield Finding(
            severity=DAMAGE, kind=kinds.LOG_FILE_MISSING, file=f"commitlog/{file_name(files_end)}",
            message=(
                f"is missing, as is all after it: the log was durable up to {flushed_offset} and"
                f" its files end at {files_end}"
            ),
            begin=files_end, end=end,
        )  # fmt: skip


def log_records(store: CheckedStore) -> Iterator[Finding]:
    """Yield the ranges without intact records between others, and how many records there are."""
    log, file_size = store.walked, store.sizes.commit_log_file_size
    for damage in log.damage:
        begin, end = damage.begin_offset, damage.end_offset
        if begin < store.settled_offset:
            yield Finding(
                severity=DAMAGE, kind=kinds.LOG_RECORD,
                file=f"commitlog/{file_name(begin - begin % file_size)}",
                message=f"{end - begin} bytes at commit offset {begin}: {damage.reason}",
                begin=begin, end=end,
            )  # fmt: skip
    yield Finding(
        severity=NOTE, kind=kinds.STATE, file="commitlog",
        message=(
            f"{store.check.record_count} intact records in"
            f" [{log.min_offset}, {log.end_offset})"
        ),
    )  # fmt: skip


def log_tail(store: CheckedStore) -> Iterator[Finding]:
    """Look at what lies after the end."""
    if not store.is_settled:
        return  # records come there
    for entry in list_files(store.filesystem, store.paths.commit_log):
        if entry.end_offset > store.walked.end_offset and entry.size:
            yield from _tail_in(store, entry)


def _tail_in(store: CheckedStore, entry: FileEntry) -> Iterator[Finding]:
    begin = max(store.walked.end_offset, entry.start_offset)
    position = begin - entry.start_offset
    array = store.filesystem.map_ranges(entry.path, position, entry.size)[position:]
    if int.from_bytes(array[4:8].tobytes(), "big") == MAGIC_BLANK:
        array, begin = array[BLANK_SIZE:], begin + BLANK_SIZE
    used = np.flatnonzero(array)
    if len(used):
        length = int(used[-1]) + 1
        yield Finding(
            severity=WARNING, kind=kinds.LOG_TAIL, file=f"commitlog/{entry.path.name}",
            message=(
                f"after the end of the log, {length} bytes at commit offset {begin} are not a whole"
                " record of this place: one that was being written, or an old one"
            ),
            begin=begin, end=begin + length,
        )  # fmt: skip
