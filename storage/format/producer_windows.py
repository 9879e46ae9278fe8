"""What is known of producers' requests, as a state of the writer's journal.

Big-endian 64-bit numbers, as many as there are::

    commit_offset, set_ms, forgotten_ms, doubtful_ms, number of producers
    for each producer:
        id, last_ms, forgotten, unknown_ms, number of requests
        for each request:
            sequence, number of the numbers that follow, these numbers

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

_HEAD_COUNT: Final = 5
_PRODUCER_COUNT: Final = 5

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
    """Return the bytes of all of it."""
    return b"".join((_to_bytes(array("q", (*head, len(blocks)))), *blocks))


def decode_windows(data: bytes) -> tuple[WindowsHead, list[ProducerBlock]]:
    """Return what was encoded."""
    numbers = _from_bytes(data)
    return WindowsHead(*numbers[:4]), list(_blocks(numbers, numbers[4]))


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
