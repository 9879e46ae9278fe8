"""When a record was stored, read from its head alone.

The store timestamp lies after the born host, which is IPv4 or IPv6. No checksum covers it: a head is
taken for that of a record if it names its own size and its own place in the log.
"""

from __future__ import annotations

from typing import Final

from storage.format.hosts import IPV4_HOST_SIZE, IPV6_HOST_SIZE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    COMMIT_OFFSET_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_OFFSET_POSITION,
    STORE_TIMESTAMP,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_POSITION,
)

NO_TIME: Final = -1
HEAD_SIZE: Final = BORN_HOST_POSITION + IPV6_HOST_SIZE + STORE_TIMESTAMP.size
"""Bytes that hold the store timestamp of any record; no record is shorter."""


def store_time_in(head: bytes | memoryview) -> int:
    """Return the store time in Unix milliseconds that a head of ``HEAD_SIZE`` bytes has, unchecked."""
    is_ipv6 = head[SYS_FLAG_POSITION + 3] & SYS_FLAG_BORN_HOST_V6
    position = BORN_HOST_POSITION + (IPV6_HOST_SIZE if is_ipv6 else IPV4_HOST_SIZE)
    return int(STORE_TIMESTAMP.unpack_from(head, position)[0])


def store_time_of(
    head: bytes | memoryview, commit_offset: int, size: int, queue_offset: int = -1
) -> int:
    """Return when the record of ``size`` bytes at ``commit_offset`` was stored; NO_TIME without one.

    It must name the queue offset, too, unless that is below 0.
    """
    if len(head) < HEAD_SIZE:
        return NO_TIME
    held = head[QUEUE_OFFSET_POSITION : QUEUE_OFFSET_POSITION + 8]
    if queue_offset >= 0 and int.from_bytes(held, "big") != queue_offset:
        return NO_TIME
    magic = int.from_bytes(head[MAGIC_POSITION : MAGIC_POSITION + 4], "big")
    named = int.from_bytes(head[COMMIT_OFFSET_POSITION : COMMIT_OFFSET_POSITION + 8], "big")
    is_record = (
        int.from_bytes(head[:4], "big") == size
        and magic in (MAGIC_V1, MAGIC_V2)
        and named == commit_offset
    )
    return max(store_time_in(head), NO_TIME) if is_record else NO_TIME
