"""Index files held against their checksums.

The table lies beside the index in ``index-checksums/``, since a broker takes every file of ``index/`` for an
index file. A file without a row, as a broker leaves it, is believed until the log was read for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final
from zlib import crc32

from storage.format.index import IndexHeader, entry_position
from storage.format.index_checksums import ChecksumRow, decode_table
from storage.format.names import INDEX_NAME_LENGTH
from storage.message import UncoveredRange

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import ReadFile, ReadFileSystem
    from storage.format.checkpoint import IndexerSlot
    from storage.view.index.index_file import IndexShape

TABLE: Final = "table"
READ_BYTES: Final = 4 << 20


def read_table(filesystem: ReadFileSystem, directory: Path) -> dict[int, ChecksumRow]:
    """Return the rows of the table in ``index-checksums/``; none where it is missing or damaged."""
    try:
        return decode_table(filesystem.read_bytes(directory / TABLE))
    except FileNotFoundError:
        return {}


def used_bytes(header: bytes, shape: IndexShape) -> int:
    """Return how many bytes of a file a checksum is over: those up to the last entry that is counted."""
    entries = min(IndexHeader.decode(header).next_entry, shape.entry_count)
    return entry_position(shape.slot_count, entries)


def read_checksum(file: ReadFile, byte_count: int) -> Iterator[int]:
    """Yield the checksum of the bytes read so far, a few MiB at a time; the last is that of all.

    The file is read, not mapped: through a mapping its holes would take memory.
    """
    checksum = 0
    for begin in range(0, byte_count, READ_BYTES):
        data = file.pread(min(READ_BYTES, byte_count - begin), begin)
        checksum = crc32(data, checksum)
        yield checksum


def checksum_of(file: ReadFile, header: bytes, shape: IndexShape) -> int:
    """Return the checksum of a file with that header."""
    *_, checksum = read_checksum(file, used_bytes(header, shape))
    return checksum


def file_problem(
    filesystem: ReadFileSystem, path: Path, size: int, shape: IndexShape, row: ChecksumRow | None
) -> str:
    """Return what is wrong with an index file by its length and its checksum; empty for nothing."""
    if size != shape.file_size:
        return f"has {size} bytes, not {shape.file_size}"
    if row is None:
        return ""
    file = filesystem.open(path, writable=False)
    try:
        is_right = checksum_of(file, row.header, shape) == row.checksum
    finally:
        file.close()
    return "" if is_right else "does not have its checksum"


def missing_files(
    numbers: Collection[int], rows: Mapping[int, ChecksumRow], slot: IndexerSlot
) -> dict[int, UncoveredRange]:
    """Return the ranges of the files that the table or the indexer's slot name and that are not there."""
    spans = {
        number: (row.values.begin_commit_offset, row.values.end_commit_offset + 1)
        for number, row in rows.items()
    }
    newest = slot.file_name
    if newest >= max([*numbers, *rows], default=0):
        sealed_end = max((end for number, (_, end) in spans.items() if number < newest), default=1)
        spans[newest] = sealed_end - 1, slot.indexed_offset
    return {
        number: UncoveredRange(
            begin_commit_offset=begin,
            end_commit_offset=end,
            file_name=f"{number:0{INDEX_NAME_LENGTH}d}",
            reason="is missing, or has another length",
        )
        for number, (begin, end) in spans.items()
        if number and number not in numbers
    }
