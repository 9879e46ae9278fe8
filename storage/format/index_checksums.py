"""The checksums of index files: one row a file that is sealed, in ``index-checksums/table``.

Little-endian::

    offset  size        field
    0       16          head
    16      64 a row    rows    oldest file first

Head::

    offset  size  type  field
    0       4     u32   magic
    4       4     i32   version
    8       4     i32   row_count
    12      4     u32   crc           CRC-32 of head and rows, this field as zero
    16

Row::

    offset  size  type  field
    0       8     i64   number        the index file's name
    8       40    40s   header        of the index file
    48      8     i64   checked_ms    when the file last had its checksum
    56      8     i64   checksum      CRC-32 of its header, its slots and the entries that the header counts
    64

A file is sealed when it is full. The newest file has a row, too, after an orderly stop: the row is about it
as long as both have the same header.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

from storage.format.index import IndexHeader

HEAD: Final = Struct("<IiiI")
ROW: Final = Struct("<q40sqq")
MAGIC: Final = 0x58444E49
VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class ChecksumRow:
    """What an index file was when it was sealed."""

    number: int
    header: bytes
    checksum: int
    checked_ms: int = 0

    @property
    def values(self) -> IndexHeader:
        """The header as values."""
        return IndexHeader.decode(self.header)


def encode_table(rows: Iterable[ChecksumRow]) -> bytes:
    """Return the bytes of the table."""
    packed = [
        ROW.pack(row.number, row.header, row.checked_ms, row.checksum)
        for row in sorted(rows, key=lambda row: row.number)
    ]
    body = b"".join(packed)
    crc = crc32(body, crc32(HEAD.pack(MAGIC, VERSION, len(packed), 0)))
    return HEAD.pack(MAGIC, VERSION, len(packed), crc) + body


def decode_table(data: bytes) -> dict[int, ChecksumRow]:
    """Return the rows by file; none of a table that is damaged."""
    if len(data) < HEAD.size:
        return {}
    magic, version, count, crc = HEAD.unpack_from(data)
    body = data[HEAD.size :]
    if (magic, version, count * ROW.size) != (MAGIC, VERSION, len(body)):
        return {}
    if crc32(body, crc32(HEAD.pack(magic, version, count, 0))) != crc:
        return {}
    found = (ROW.unpack_from(body, at * ROW.size) for at in range(count))
    return {
        number: ChecksumRow(number, header, checksum, checked_ms)
        for number, header, checked_ms, checksum in found
    }
