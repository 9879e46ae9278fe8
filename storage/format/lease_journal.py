"""The blocks of the journal of leases, ``leases/<generation>`` (``storage.format.journal``).

The file's first block is a HEAD: the version, i64. NAMES are JSON.
``queues`` has lists of number, group, topic, the topic that the queue is of, queue id, incarnation, whether
it is orderly, and where the group began at the latest message, else 0; ``owners`` lists of number, client id
and until when it has renewed. EVENTS are 56 bytes each, little-endian::

    offset  type  field
    0       i64   queue number << 8 | kind
    8       i64   queue offset; of SET and DONE the block number, queue offset >> 6
    16      u64   mask: which messages of that block, the first one in the lowest bit
    24      i64   when they are visible again, Unix ms; of NEXT the store time of the record before
    32      i64   when they were handed out, Unix ms; of NEXT the commit offset of that record
    40      i64   (owner + 1) << 32 | kind of state << 24 | attempts
    48      i64   hash of the message group, in orderly groups
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

LEASE_DIRECTORY: Final = "leases"
VERSION: Final = 3
HEAD_PAYLOAD: Final = Struct("<q")

HEAD: Final = 1
NAMES: Final = 2
EVENTS: Final = 3

EVENT: Final = Struct("<qqQqqqq")
KIND_BITS: Final = 8

SET: Final = 1  # messages are as the event says
DONE: Final = 2  # messages are acknowledged, dropped or dead letters by now
BEFORE: Final = 3  # everything before the queue offset is done
NEXT: Final = 4  # nothing from the queue offset on was handed out
COMMITTED_AT: Final = 5  # consumerOffset.json was given the queue offset
FORGOTTEN: Final = 6  # the queue's leases are no more, and its number stands for nothing


def encode_names(names: Mapping[str, Any]) -> bytes:
    """Return the payload of a NAMES block."""
    text = json.dumps(names).encode()
    return text + b" " * (-len(text) % 8)
