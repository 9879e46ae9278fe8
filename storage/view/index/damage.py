"""Whole index files held against their checksums."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from storage.format.names import INDEX_NAME_LENGTH
from storage.message import UncoveredRange
from storage.view.index.checksums import IndexChecksums, block_count
from storage.view.index.index_file import PUT_LOOK_S, PUT_LOOKS, IndexShape, list_index_files

if TYPE_CHECKING:
    from storage.files.filesystem import ByteArray, ReadFileSystem
    from storage.format.index_checksums import ChecksumRecord
    from storage.view.layout import StorePaths


def index_damage(
    filesystem: ReadFileSystem, paths: StorePaths, shape: IndexShape, *, current: bool
) -> Iterator[UncoveredRange]:
    """Yield the index files that are not as they were put, oldest first, and those that are gone.

    ``current`` says that our indexer was the last to write the index: where a broker has put to a file
    since, its checksums say nothing. Nothing is said of files without checksums either.
    """
    files = {
        number: path
        for number, size, path in list_index_files(filesystem, paths.index)
        if size == shape.file_size
    }
    noted = {number for number, _, _ in list_index_files(filesystem, paths.index_checksums)}
    for number in sorted(files.keys() | noted):
        name = f"{number:0{INDEX_NAME_LENGTH}d}"
        checksums = IndexChecksums.find(filesystem, paths.index_checksums / name, shape)
        record = checksums.newest() if checksums is not None else None
        if checksums is None or record is None:
            continue
        if number in files:
            data = filesystem.map_ranges(files[number], 0)
            header = data[: len(record.header)].tobytes()
            if not current and header != record.header:
                continue
            reason = _what_is_wrong(data, header, checksums, record, shape)
            if reason:
                yield replace(_range_of(record, name), reason=reason)
        elif current:
            yield _range_of(record, name)


def _range_of(record: ChecksumRecord, name: str) -> UncoveredRange:
    return UncoveredRange(
        begin_commit_offset=record.values.begin_commit_offset,
        end_commit_offset=record.values.end_commit_offset + 1,
        file_name=name,
        reason="is gone or has another size",
    )


def _what_is_wrong(
    data: ByteArray,
    header: bytes,
    checksums: IndexChecksums,
    record: ChecksumRecord,
    shape: IndexShape,
) -> str:
    """Return what is the matter with a file, empty if all its blocks are right."""
    if record.sealed and header != record.header:
        return "is damaged: its header is not as it was written"
    count = block_count(shape)
    bad = 0
    block = checksums.bad_block(data, shape, 0, count)
    while block != -1:
        bad += _is_bad(data, checksums, shape, block)
        block = checksums.bad_block(data, shape, block + 1, count)
    return f"is damaged: {bad} of {count} blocks are not as they were written" if bad else ""


def _is_bad(data: ByteArray, checksums: IndexChecksums, shape: IndexShape, block: int) -> bool:
    """Whether a block differs from its sum, and not just while a put is changing both."""
    for _ in range(PUT_LOOKS):
        put_count = checksums.put_count
        if checksums.bad_block(data, shape, block, block + 1) == -1:
            return False
        if put_count % 2 == 0 and put_count == checksums.put_count:
            return True
        time.sleep(PUT_LOOK_S)
    return True
