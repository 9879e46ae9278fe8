"""The file of what is known of producers' requests: ``config/producers.sequences``, with a copy.

Big-endian 64-bit numbers, as many as there are::

    MAGIC, version, commit_offset, set_ms, forgotten_ms, doubtful_ms, number of producers
    for each producer:
        id, last_ms, forgotten, unknown_ms, number of requests
        for each request:
            sequence, number of the numbers that follow, these numbers
    CRC-32 of all before

The numbers of a request are the commit offsets ``begin, end`` of each part of its records; where there
is an odd number of them the last is 0, and says that records which should follow are not in the log.
There are none where nobody knows where all of its records are. ``set_ms`` is by how much the wall clock
was set since the times in ``_ms`` began to be told.
``storage.producers.windows`` says what the others mean.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

MAGIC: Final = 0x5053455157494E44  # "PSEQWIND"
VERSION: Final = 1
_HEAD_COUNT: Final = 7
_PRODUCER_COUNT: Final = 5
_SIZE: Final = 8

Parts = tuple[int, ...]
"""Where a request's records lie: begin, end of each part; then a 0 if that is not all of them."""


def is_torn(parts: Parts) -> bool:
    """Whether some of a request's records are missing."""
    return len(parts) % 2 == 1


class WindowsHead(NamedTuple):
    """What holds for all producers."""

    commit_offset: int
    set_ms: int
    forgotten_ms: int
    doubtful_ms: int


class ProducerBlock(NamedTuple):
    """One producer and its requests by sequence, in the order in which they were stored."""

    producer_id: int
    last_ms: int
    forgotten: int
    unknown_ms: int
    requests: dict[int, Parts]


def encode_block(block: ProducerBlock) -> bytes:
    """Return the bytes of one producer."""
    numbers = array("q", (*block[:4], len(block.requests)))
    for sequence, parts in block.requests.items():
        numbers.extend((sequence, len(parts), *parts))
    return _to_bytes(numbers)


def encode_windows(head: WindowsHead, blocks: list[bytes]) -> bytes:
    """Return the bytes of the file."""
    data = b"".join((_to_bytes(array("q", (MAGIC, VERSION, *head, len(blocks)))), *blocks))
    return data + _to_bytes(array("q", (crc32(data),)))


def decode_windows(data: bytes) -> tuple[WindowsHead, list[ProducerBlock]]:
    """Return what a file says. Raises ValueError if it is not whole."""
    if len(data) < (_HEAD_COUNT + 1) * _SIZE or len(data) % _SIZE:
        raise ValueError(f"{len(data)} bytes are no whole file")
    numbers = _from_bytes(data)
    if numbers[0] != MAGIC or numbers[1] != VERSION:
        raise ValueError("the file does not begin as it should")
    if numbers[-1] != crc32(data[:-_SIZE]):
        raise ValueError("the checksum is wrong")
    return WindowsHead(*numbers[2:6]), list(_blocks(numbers, numbers[6]))


def _blocks(numbers: array[int], count: int) -> Iterable[ProducerBlock]:
    at = _HEAD_COUNT
    for _ in range(count):
        producer_id, last_ms, forgotten, unknown_ms, request_count = numbers[
            at : at + _PRODUCER_COUNT
        ]
        at += _PRODUCER_COUNT
        requests: dict[int, Parts] = {}
        for _ in range(request_count):
            sequence, size = numbers[at : at + 2]
            requests[sequence] = tuple(numbers[at + 2 : at + 2 + size])
            at += 2 + size
        yield ProducerBlock(producer_id, last_ms, forgotten, unknown_ms, requests)


def _to_bytes(numbers: array[int]) -> bytes:
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers.tobytes()


def _from_bytes(data: bytes) -> array[int]:
    numbers = array("q", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
