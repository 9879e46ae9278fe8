"""The journal of leases: ``leases/<generation>``, a file of blocks one after the other, then zeros.

Little-endian; a block::

    offset  size  type  field
    0       4     u32   magic
    4       4     u32   kind         KEY, NAMES or EVENTS
    8       8     i64   number       of the block in the file, from 0
    16      4     u32   size         of the payload, bytes
    20      4     u32   crc          CRC-32 of these 24 bytes and the payload, this field as the CRC
                                     of the block before, 0 of the first
    24      size  bytes payload

Payloads are filled up to a multiple of 8 bytes. The file's first block is a KEY: the version, i32, and 16
bytes, the key of receipt handles. NAMES are JSON: what the numbers in events stand for. EVENTS are lines
of 7 i64::

    column  name           meaning
    0       EVENT_KIND     queue number << 8 | kind
    1       FIRST          queue offset; of OWNED the number of the owner
    2       COUNT          rows of adjacent queue offsets, of a kind for rows
    3       EVENT_STATE    as in a row
    4       EVENT_TIME     as a row's VISIBLE_AT; of OWNED until when the owner has renewed
    5       EVENT_LEASED   as a row's LEASED_AT
    6       EVENT_GROUP    as a row's MESSAGE_GROUP

As each checksum covers the one before, what an earlier end of the file left after this one never counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple
from zlib import crc32

LEASE_DIRECTORY: Final = "leases"
MAGIC: Final = 0x314C4C50
VERSION: Final = 1
HEAD: Final = Struct("<IIqII")
KEY_PAYLOAD: Final = Struct("<i16s4x")

KEY: Final = 1
NAMES: Final = 2
EVENTS: Final = 3

EVENT_KIND: Final = 0
FIRST: Final = 1
COUNT: Final = 2
EVENT_STATE: Final = 3
EVENT_TIME: Final = 4
EVENT_LEASED: Final = 5
EVENT_GROUP: Final = 6
EVENT_COLUMNS: Final = 7
EVENT_SIZE: Final = 8 * EVENT_COLUMNS
KIND_BITS: Final = 8

SET: Final = 1  # rows are as the event says
DONE: Final = 2  # rows are acknowledged, dropped or made dead letters of
NEXT: Final = 3  # nothing from FIRST on was handed out
CLEARED: Final = 4  # no rows are left, and nothing from FIRST on was handed out
COMMITTED_AT: Final = 5  # consumerOffset.json was given FIRST
OWNED: Final = 6  # an owner has renewed its leases
FORGOTTEN: Final = 7  # the queue's leases are no more, and its number stands for nothing


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


def encode_names(names: Mapping[str, Any]) -> bytes:
    """Return the payload of a NAMES block: ``queues``, lists of number, group, topic, the topic that the queue
    is of, queue id, incarnation and whether it is orderly; ``owners``, lists of number and client id.
    """
    text = json.dumps(names).encode()
    return text + b" " * (-len(text) % 8)


def encode_key(key: bytes) -> bytes:
    """Return the payload of a KEY block."""
    return KEY_PAYLOAD.pack(VERSION, key)


def decode_key(payload: memoryview) -> bytes:
    """Return the key of receipt handles. Raises ValueError for another version."""
    if len(payload) != KEY_PAYLOAD.size:
        raise ValueError("not a key of receipt handles")
    version, key = KEY_PAYLOAD.unpack(payload)
    if version != VERSION:
        raise ValueError(f"version {version} of the journal of leases; this code reads {VERSION}")
    return bytes(key)
