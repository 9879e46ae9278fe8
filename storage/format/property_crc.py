"""The property CRC: a trailer of a record's property block that protects the whole record.

Its layout::

    offset  size  field
    0       8     name     ``__CRC32#``
    8       1     0x01
    9       10    digits   CRC-32 of all bytes before the trailer, masked to 31 bits,
                           least significant digit first
    19      1     0x02
    20

Damage can hit the trailer itself, its ten fixed bytes too. A block whose last 20 bytes are no
trailer ends in a damaged one if all ten digits are those of the CRC, or if at least eight of the
fixed bytes or eleven of all twenty are what they should be. The latter two do not count where the
20 bytes are a well-formed property of another name with a value of ten bytes: that is a sender's.
"""

from __future__ import annotations

from typing import Final

from storage.format.properties import CRC32, PROPERTY_END

PROPERTY_CRC_SIZE: Final = 20
PROPERTY_CRC_DIGITS: Final = 10
TRAILER_FIXED_RIGHT_MIN: Final = 8
TRAILER_RIGHT_MIN: Final = 11
CRC_MASK: Final = 0x7FFF_FFFF

_TRAILER_HEAD: Final = CRC32.encode() + b"\x01"
_ZERO_TRAILER: Final = _TRAILER_HEAD + b"0" * PROPERTY_CRC_DIGITS + b"\x02"

Buffer = bytes | bytearray | memoryview


def has_property_crc(properties_block: Buffer) -> bool:
    """Whether a property block ends with a trailer, whatever its digits are."""
    tail = bytes(properties_block[-PROPERTY_CRC_SIZE:])
    return len(tail) == PROPERTY_CRC_SIZE and tail.startswith(_TRAILER_HEAD) and tail[-1] == 2


def reserve_property_crc_trailer(properties_block: bytes) -> bytes:
    """Return the block with a zero-digit trailer at its end, terminating the last pair if needed."""
    if has_property_crc(properties_block):
        return properties_block
    if properties_block and properties_block[-1] != PROPERTY_END:
        properties_block += b"\x02"
    return properties_block + _ZERO_TRAILER
