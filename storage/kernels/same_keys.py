"""Kernels over keys of messages: which records have the same topic and key."""

from __future__ import annotations

from typing import Any, Final

from storage.kernels.columns import (
    COLUMN_COUNT,
    KEYS_LENGTH,
    KEYS_POSITION,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.crc import bytes_equal
from storage.kernels.primitives.jit import BYTES, ROWS, WRITABLE_INT64S, i64, inner, int64, kernel
from storage.kernels.primitives.scratch import free_longs, new_longs

PRIME: Final = 1099511628211
POSITIVE: Final = 0x7FFFFFFFFFFFFFFF


@inner
def same_key(data: Any, rows: Any, left: int, right: int) -> bool:
    """Whether two rows name the same topic and key."""
    return (
        rows[left, KEYS_LENGTH] == rows[right, KEYS_LENGTH]
        and rows[left, TOPIC_LENGTH] == rows[right, TOPIC_LENGTH]
        and bytes_equal(
            data, rows[left, KEYS_POSITION], data, rows[right, KEYS_POSITION],
            rows[left, KEYS_LENGTH],
        )
        and bytes_equal(
            data, rows[left, TOPIC_POSITION], data, rows[right, TOPIC_POSITION],
            rows[left, TOPIC_LENGTH],
        )
    )  # fmt: skip


@inner
def mix(hashed: int, data: Any, position: int, length: int) -> int:
    """Go on hashing with a range of bytes."""
    for i in range(length):
        hashed = ((hashed ^ read_u8(data, position + i)) * PRIME) & POSITIVE
    return i64(((hashed ^ 0x5BD1) * PRIME) & POSITIVE)


@inner
def spread(hashed: int) -> int:
    """Let every bit of a hash depend on all of it."""
    hashed = ((hashed ^ (hashed >> 31)) * 0x7FB5D329728EA185) & POSITIVE
    hashed = ((hashed ^ (hashed >> 27)) * 0x01DADEF4BC2DD44D) & POSITIVE
    return i64(hashed ^ (hashed >> 33))


@kernel(int64(BYTES, ROWS, WRITABLE_INT64S, WRITABLE_INT64S, WRITABLE_INT64S))
def group_by_key(data: Any, rows: Any, key_of: Any, last_row: Any, hashes: Any) -> int:
    """Number the pairs of topic and key of rows that all have keys, in order of appearance.

    ``key_of[i]`` becomes the number of row i's, ``last_row[n]`` the last row of number n, and
    ``hashes[n]`` 63 bits that depend on topic and key alone. Returns how many there are, -1 if an
    argument does not fit.
    """
    count = rows.shape[0]
    if rows.shape[1] != COLUMN_COUNT or min(key_of.size, last_row.size, hashes.size) < count:
        return i64(-1)
    bucket_count = i64(16)
    while bucket_count < 2 * count:
        bucket_count *= 2
    buckets = new_longs(bucket_count)
    for bucket in range(bucket_count):
        buckets[bucket] = -1
    found = i64(0)
    for row in range(count):
        hashed = mix(i64(0), data, rows[row, TOPIC_POSITION], rows[row, TOPIC_LENGTH])
        hashed = spread(mix(hashed, data, rows[row, KEYS_POSITION], rows[row, KEYS_LENGTH]))
        bucket = hashed & (bucket_count - 1)
        while buckets[bucket] >= 0 and not same_key(data, rows, last_row[buckets[bucket]], row):
            bucket = (bucket + 1) & (bucket_count - 1)
        if buckets[bucket] < 0:
            buckets[bucket] = found
            hashes[found] = hashed
            found += 1
        key_of[row] = buckets[bucket]
        last_row[buckets[bucket]] = row
    free_longs(buckets)
    return found
