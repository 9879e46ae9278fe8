"""A journal of ours: a file of blocks one after the other, then zeros.

Little-endian; a block::

    offset  size  type  field
    0       4     u32   magic
    4       4     u32   kind         says what the payload is
    8       8     i64   number       of the block in the file, from 0
    16      4     u32   size         of the payload, bytes
    20      4     u32   crc          CRC-32 of these 24 bytes and the payload, this field as the CRC
                                     of the block before, 0 of the first
    24      size  bytes payload

Payloads are filled up to a multiple of 8 bytes. As each checksum covers the one before, what an earlier end
of the file left after this one never counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

MAGIC: Final = 0x314C4C50
HEAD: Final = Struct("<IIqII")


class Block(NamedTuple):
    """One whole block: its kind and payload, where it ends in the file, and its checksum."""

    kind: int
    payload: memoryview
    end: int
    crc: int


def encode_head(kind: int, number: int, payload_size: int, crc_before: int) -> bytes:
    """Return a block's head with the checksum of the block before in place of its own."""
    return HEAD.pack(MAGIC, kind, number, payload_size, crc_before)


def encode_block(kind: int, number: int, payload: bytes, crc_before: int) -> tuple[bytes, int]:
    """Return a block's bytes and its checksum."""
    head = encode_head(kind, number, len(payload), crc_before)
    crc = crc32(payload, crc32(head))
    return HEAD.pack(MAGIC, kind, number, len(payload), crc) + payload, crc


def blocks_in(data: memoryview) -> Iterator[Block]:
    """Yield the blocks from the first on that are whole, one after the other."""
    position, number, crc_before = 0, 0, 0
    while position + HEAD.size <= len(data):
        magic, kind, found_number, size, crc = HEAD.unpack_from(data, position)
        end = position + HEAD.size + size
        if magic != MAGIC or found_number != number or end > len(data):
            return
        payload = data[position + HEAD.size : end]
        if crc32(payload, crc32(encode_head(kind, number, size, crc_before))) != crc:
            return
        yield Block(kind, payload, end, crc)
        position, number, crc_before = end, number + 1, crc
