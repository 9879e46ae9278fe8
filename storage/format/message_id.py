"""Message ids, upper-case hexadecimal.

Offset message id, which names a place in the log::

    offset   size     type   field
    0        8 or 20  bytes  store_host      see ``hosts``
    8 / 20   8        i64    commit_offset
    16 / 28

Client unique id, which names a message wherever it goes::

    offset   size     type   field
    0        4 or 16  bytes  address         of the client
    4 / 16   2        u16    process_id      truncated
    6 / 18   4        u32    discriminator   differs between clients of one process
    10 / 22  4        u32    month_ms        milliseconds since the 1st of the month
    14 / 26  2        u16    counter
    16 / 28

Both have the same lengths, so text alone does not tell them apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE, decode_host, encode_host

COMMIT_OFFSET: Final = Struct(">q")
PROCESS_ID: Final = Struct(">H")
IPV4_ID_SIZE: Final = 16
IPV6_ID_SIZE: Final = 28


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """What an offset message id says: which store, and where in its log."""

    store_host: str
    commit_offset: int


def encode_message_id(store_host: str | bytes, commit_offset: int) -> str:
    """Encode the offset message id of a record; ``store_host`` as text or as encoded bytes."""
    host = encode_host(store_host) if isinstance(store_host, str) else store_host
    return (host + COMMIT_OFFSET.pack(commit_offset)).hex().upper()


def decode_message_id(message_id: str) -> OffsetMessageId:
    """Decode an offset message id; ValueError if it cannot be one."""
    raw = _unhex(message_id)
    host_size = IPV4_HOST_SIZE if len(raw) == IPV4_ID_SIZE else IPV6_HOST_SIZE
    (commit_offset,) = COMMIT_OFFSET.unpack_from(raw, host_size)
    if commit_offset < 0:
        raise ValueError(f"message id {message_id!r} has a negative commit offset")
    return OffsetMessageId(decode_host(raw[:host_size]), commit_offset)


def _unhex(message_id: str) -> bytes:
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(raw) not in (IPV4_ID_SIZE, IPV6_ID_SIZE) or len(message_id) != 2 * len(raw):
        raise ValueError(f"message id {message_id!r} is not 32 or 56 hexadecimal digits")
    return raw
