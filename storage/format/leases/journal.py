"""The blocks of the journal of leases, ``leases/<generation>`` (``storage.format.journal``).

The file's first block is a KEY: the version, i32, and 16 bytes, the key of receipt handles. NAMES are JSON:
what the numbers in events stand for. EVENTS are lines of 7 i64::

    column  name           meaning
    0       EVENT_KIND     queue number << 8 | kind
    1       FIRST          queue offset; of OWNED the number of the owner
    2       COUNT          rows of adjacent queue offsets, of a kind for rows
    3       EVENT_STATE    as in a row
    4       EVENT_TIME     as a row's VISIBLE_AT; of OWNED until when the owner has renewed
    5       EVENT_LEASED   as a row's LEASED_AT
    6       EVENT_GROUP    as a row's MESSAGE_GROUP
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

LEASE_DIRECTORY: Final = "leases"
VERSION: Final = 1
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


def encode_names(names: Mapping[str, Any]) -> bytes:
    """Return the payload of a NAMES block: ``queues``, lists of number, group, topic, the topic that the queue
    is of, queue id, incarnation and whether it is orderly; ``begins``, lists of number and where the group began at
    the latest message; ``owners``, lists of number and client id.
    """
    text = json.dumps(names).encode()
    return text + b" " * (-len(text) % 8)


def encode_blocks(
    events: bytes = b"", names: Mapping[str, Any] | None = None
) -> list[tuple[int, bytes]]:
    """Return kinds and payloads of the blocks of names, then of events, each where there are any."""
    blocks = [(NAMES, encode_names(names))] if names else []
    return [*blocks, (EVENTS, events)] if events else blocks


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
