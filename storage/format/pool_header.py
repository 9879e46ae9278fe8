"""First page of a transient pool buffer: whose bytes follow, and which of them are not in the file.

Little-endian; the bytes of the log file follow at 4096, each at its position in the file::

    offset  size  type  field
    0       8     i64   magic
    8       4     i32   version
    12      4     i32   reserved
    16      16    16s   boot_id
    32      16    16s   store_id
    48      8     i64   start_offset  of the log file that the buffer serves
    56      8     i64   file_size
    64      4     u32   crc           CRC-32 of bytes 0-63
    68      4     u32   reserved_too
    72      8     i64   written       bytes below are whole; stored alone, after them
    80      8     i64   committed     bytes below are in the log file; stored alone, after them
    88

Bytes from ``committed`` to ``written`` are in no file yet. ``written <= committed`` means there are none.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final
from zlib import crc32

LAYOUT: Final = Struct("<qii16s16sqqIIqq")
MAGIC: Final = 0x314C4F4F504B5450
VERSION: Final = 1
HEADER_PAGE_SIZE: Final = 4096
WRITTEN_POSITION: Final = 72
COMMITTED_POSITION: Final = 80

_CRC_POSITION: Final = 64


@dataclass(frozen=True, slots=True)
class PoolHeader:
    """The header of one buffer."""

    boot_id: bytes
    store_id: bytes
    start_offset: int
    file_size: int
    written: int = 0
    committed: int = 0

    def encode_identity(self) -> bytes:
        """Return the first 72 bytes: everything but the two moving words."""
        data = LAYOUT.pack(
            MAGIC, VERSION, 0, self.boot_id, self.store_id, self.start_offset, self.file_size,
            0, 0, self.written, self.committed,
        )  # fmt: skip
        crc = crc32(data[:_CRC_POSITION])
        return data[:_CRC_POSITION] + crc.to_bytes(8, "little")

    @classmethod
    def decode(cls, page: bytes) -> PoolHeader | None:
        """Read a header; None unless it is whole and of this version."""
        if len(page) < LAYOUT.size:
            return None
        (
            magic,
            version,
            _,
            boot_id,
            store_id,
            start_offset,
            file_size,
            crc,
            _,
            written,
            committed,
        ) = LAYOUT.unpack_from(page)
        if magic != MAGIC or version != VERSION or crc != crc32(page[:_CRC_POSITION]):
            return None
        return cls(boot_id, store_id, start_offset, file_size, written, committed)
