"""Which queue of a topic a message group belongs to: the one that a broker's proxy chooses."""

from __future__ import annotations

from typing import Final

from storage.format.properties import java_hash

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1


def queue_of_message_group(message_group: str, queue_count: int) -> int:
    """Return the queue id; with one queue more, few message groups change theirs."""
    return consistent_hash(java_hash(message_group), queue_count)


def consistent_hash(value: int, bucket_count: int) -> int:
    """Return a bucket of ``bucket_count``, as Guava's ``Hashing.consistentHash`` does.

    A linear congruential generator that is seeded with ``value`` makes the jumps from bucket to bucket.
    """
    state = value & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        next_double = ((state >> 33) + 1) / (1 << 31)
        following = int((candidate + 1) / next_double)
        if following >= bucket_count:
            return candidate
        candidate = following
