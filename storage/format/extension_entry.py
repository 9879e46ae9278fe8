"""Consume queue extension: more about a record than a unit's 8 bytes of tag code hold.

    offset  size  type   field
    0       2     i16    size                 of the whole entry: 20 plus the bitmap
    2       8     i64    tag_code             the record's own
    10      8     i64    store_timestamp_ms
    18      2     i16    bitmap_size
    20      ...   bytes  bitmap               one bit for each bloom position of matching filters
    20 + bitmap_size

Integers are big-endian. A size of -1 ends a file. The consume queue unit holds the entry's address
in place of its tag code: the position in the extension queue minus 2**63. Hashes and delivery times
are never below -2**31, so a lower number is an address.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

LAYOUT: Final = Struct(
    ">h"  # size
    "q"  # tag_code
    "q"  # store_timestamp_ms
    "h"  # bitmap_size
)
ENTRY_SIZE_MIN: Final = 20
END_OF_FILE: Final = -1
ADDRESS_MAX: Final = -(1 << 31) - 1
_ADDRESS_BASE: Final = -(1 << 63)


@dataclass(frozen=True, slots=True)
class ExtensionEntry:
    """An entry as values."""

    tag_code: int
    store_timestamp_ms: int
    bitmap: bytes

    @property
    def size(self) -> int:
        """Bytes that the entry takes."""
        return ENTRY_SIZE_MIN + len(self.bitmap)


def decode_extension(
    buffer: bytes | bytearray | memoryview, position: int = 0
) -> ExtensionEntry | None:
    """Decode the entry at ``position``; None at the end mark of a file or in unused space.

    ValueError for lengths that contradict each other or run out of the buffer.
    """
    left = len(buffer) - position
    if position < 0 or left < 2:
        raise ValueError(f"no extension entry at position {position} of {len(buffer)}")
    size = int.from_bytes(buffer[position : position + 2], "big", signed=True)
    if size in (END_OF_FILE, 0):
        return None
    if size < ENTRY_SIZE_MIN or size > left:
        raise ValueError(
            f"an extension entry of {size} bytes does not fit the {left} that are left"
        )
    _, tag_code, store_timestamp_ms, bitmap_size = LAYOUT.unpack_from(buffer, position)
    if bitmap_size != size - ENTRY_SIZE_MIN:
        raise ValueError(f"a bitmap of {bitmap_size} bytes does not fill an entry of {size}")
    bitmap = bytes(buffer[position + ENTRY_SIZE_MIN : position + size])
    return ExtensionEntry(tag_code, store_timestamp_ms, bitmap)


def is_address(tag_code: int) -> bool:
    """Whether the tag code of a unit is an extension address."""
    return tag_code <= ADDRESS_MAX


def decode_address(tag_code: int) -> int:
    """Return the position that an address names."""
    return tag_code - _ADDRESS_BASE
