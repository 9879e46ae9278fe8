"""Receipt handles: what a consumer gives back to acknowledge a message; 40 letters each.

URL-safe base64 of 30 bytes, big-endian::

    offset  size  type  field
    0       1     u8    version
    1       1     u8    kind          0: the topic's own queue; 1, 2: of its retry topics
    2       2     u16   attempt       65,535 for more
    4       4     i32   queue_id
    8       8     i64   queue_offset
    16      6     u48   leased_at     Unix ms
    22      8     i64   check         31 bits of CRC-32 of the bytes before, XOR ``salt_of`` group and topic
    30
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

VERSION: Final = 2
HANDLE_SIZE: Final = 40
PACKED_SIZE: Final = 30
ATTEMPT_MAX: Final = 0xFFFF

KIND_POSITION: Final = 1
ATTEMPT_POSITION: Final = 2
QUEUE_ID_POSITION: Final = 4
QUEUE_OFFSET_POSITION: Final = 8
LEASED_AT_POSITION: Final = 16
CHECK_POSITION: Final = 22

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_FORGED: Final = b"A" * HANDLE_SIZE  # of version 0


def salt_of(group: str, topic: str) -> int:
    """Return what tells handles of a group in a topic from all others."""
    digest = sha256(f"{group}\0{topic}".encode()).digest()
    return int.from_bytes(digest[:8], signed=True)


def encode_handles(packed: bytes) -> bytes:
    """Return the letters of packed handles."""
    return urlsafe_b64encode(packed)


def decode_handles(handles: bytes) -> bytes:
    """Return packed handles; of one with a letter that is none a forged one."""
    if handles.translate(None, _LETTERS):
        each = [handles[at : at + HANDLE_SIZE] for at in range(0, len(handles), HANDLE_SIZE)]
        handles = b"".join(_FORGED if one.translate(None, _LETTERS) else one for one in each)
    return urlsafe_b64decode(handles)
