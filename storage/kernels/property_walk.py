"""One walk over a property block: columns of the row table, and a client's block judged.

A block is walked by its separators, which ``marks`` finds for 64 bytes at once; see
``storage.kernels.properties`` for what a property is. The strict walk also refuses what no client
may send; it judges the block up to a property CRC trailer, the columns come from all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from storage.format.properties import (
    DELAY,
    DELAYING,
    INNER_MULTI_DISPATCH,
    KEYS,
    STORE_ONLY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
)
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.kernels.columns import (
    FEATURES,
    HAS_DELAY,
    HAS_KEYS,
    HAS_MULTI_DISPATCH,
    HAS_PROPERTY_CRC,
    HAS_TAGS,
    HAS_TIMER,
    HAS_UNIQ_KEY,
    KEYS_LENGTH,
    KEYS_POSITION,
    STOP_DELAY,
    STOP_END,
    STOP_PROPERTIES,
    STOP_RESERVED_PROPERTY,
    STOP_TAG,
    TAG_CODE,
    UNIQ_KEY_LENGTH,
    UNIQ_KEY_POSITION,
)
from storage.kernels.primitives.big_endian import read_i64, read_u32
from storage.kernels.primitives.jit import i64, inner, uintp
from storage.kernels.primitives.marks import BLOCK, from_bit, lowest, marks, without_lowest
from storage.kernels.properties import (
    NAME_DELAY,
    NAME_MULTI_DISPATCH,
    has_crc_trailer,
    is_utf8,
    java_hash,
    matches,
    reserved_names,
)

DIGITS_MAX: Final = 15
BAR: Final = 0x7C

_TAGS: Final = int.from_bytes(TAGS.encode(), "big")
_KEYS: Final = int.from_bytes(KEYS.encode(), "big")
_UNIQ_KEY: Final = int.from_bytes(UNIQ_KEY.encode(), "big")
_DELAY_SIZE: Final = len(DELAY)
_TIMER: Final = int.from_bytes(b"TIMER_DE", "big")  # what the three names begin with
_DELAY_SEC_SIZE: Final = len(TIMER_DELAY_SEC)
_DELAY_MS_SIZE: Final = len(TIMER_DELAY_MS)
_DELIVER_MS_SIZE: Final = len(TIMER_DELIVER_MS)
_DELAY_SEC_END: Final = int.from_bytes(TIMER_DELAY_SEC.encode()[-8:], "big")
_DELAY_MS_END: Final = int.from_bytes(TIMER_DELAY_MS.encode()[-8:], "big")
_DELIVER_MS_END: Final = int.from_bytes(TIMER_DELIVER_MS.encode()[-8:], "big")
_MULTI_DISPATCH_SIZE: Final = len(INNER_MULTI_DISPATCH)

# Names that only a store writes. KEYS, TAGS, UNIQ_KEY, a delay and what a client says of its own sending are
# a client's to set.
name_is_reserved: Final = reserved_names(STORE_ONLY - DELAYING)


@inner
def asks_for_time(data: Any, begin: int, length: int) -> bool:
    """Whether a name of ``length`` bytes is one of those that ask for a time of delivery."""
    if length == _DELAY_SEC_SIZE:
        end = _DELAY_SEC_END
    elif length == _DELAY_MS_SIZE:
        end = _DELAY_MS_END
    elif length == _DELIVER_MS_SIZE:
        end = _DELIVER_MS_END
    else:
        return False
    return bool(read_i64(data, begin) == _TIMER and read_i64(data, begin + length - 8) == end)


@inner
def is_number(data: Any, begin: int, end: int) -> bool:
    """Whether bytes are digits, and not too many."""
    for i in range(begin, end):
        if not 0x30 <= data[uintp(i)] <= 0x39:
            return False
    return bool(end - begin <= DIGITS_MAX)


@inner
def note_property(data: Any, begin: int, separator: int, end: int, rows: Any, row: int) -> int:
    """Fill the columns of the property at ``[begin, end)`` and return its HAS_* bit, 0 if none."""
    length = separator - begin
    value = separator + 1
    if length == 4:
        name = read_u32(data, begin)
        if name == _TAGS:
            tag_code = java_hash(data, value, end - value, i64(0))
            rows[row, TAG_CODE] = (tag_code ^ 0x80000000) - 0x80000000
            return i64(HAS_TAGS)
        if name == _KEYS:
            rows[row, KEYS_POSITION] = value
            rows[row, KEYS_LENGTH] = end - value
            return i64(HAS_KEYS)
    elif length == 8:
        if read_i64(data, begin) == _UNIQ_KEY:
            rows[row, UNIQ_KEY_POSITION] = value
            rows[row, UNIQ_KEY_LENGTH] = end - value
            return i64(HAS_UNIQ_KEY)
    elif length == _DELAY_SIZE:
        if matches(data, begin, NAME_DELAY):
            return i64(HAS_DELAY)
    elif length == _MULTI_DISPATCH_SIZE and matches(data, begin, NAME_MULTI_DISPATCH):
        return i64(HAS_MULTI_DISPATCH)
    elif asks_for_time(data, begin, length):
        return i64(HAS_TIMER)
    return i64(0)


@inner
def client_stop(data: Any, begin: int, separator: int, end: int) -> int:
    """Stop of a property that a client sends; a ``separator`` below 0 says that there is none."""
    if separator <= begin or separator + 1 >= end:
        return i64(STOP_PROPERTIES)
    length = separator - begin
    if name_is_reserved(data, begin, length):
        return i64(STOP_RESERVED_PROPERTY)
    is_delay = length == _DELAY_SIZE and matches(data, begin, NAME_DELAY)
    if (is_delay or asks_for_time(data, begin, length)) and not is_number(data, separator + 1, end):
        return i64(STOP_DELAY)
    if length == 4 and read_u32(data, begin) == _TAGS:
        for i in range(separator + 1, end):
            if data[uintp(i)] == BAR:
                return i64(STOP_TAG)
    return i64(STOP_END)


def _walk(*, strict: bool) -> Callable[[Any, int, int, Any, int], int]:
    """Return the walk as a function for kernels."""

    @inner
    def walk(data: Any, position: int, length: int, rows: Any, row: int) -> int:
        end = position + length
        features = i64(0)
        rows[row, TAG_CODE] = 0
        rows[row, UNIQ_KEY_POSITION] = 0
        rows[row, UNIQ_KEY_LENGTH] = 0
        rows[row, KEYS_POSITION] = 0
        rows[row, KEYS_LENGTH] = 0
        judged_end = end
        if has_crc_trailer(data, position, length):
            features |= HAS_PROPERTY_CRC
            judged_end -= PROPERTY_CRC_SIZE
        stop = i64(STOP_END)
        any_high = np.uint64(0)
        begin = i64(position)
        separator = i64(-1)
        block = i64(position)
        while block < end:
            ends, separators, high = marks(data, block, end)
            any_high |= high
            while begin < end:
                bit = lowest(ends)
                if separator < 0:
                    first = lowest(separators)
                    if first < bit:
                        separator = block + first
                if bit == BLOCK and block + BLOCK < end:
                    break
                at = min(block + bit, end)
                if strict and begin < judged_end and stop == STOP_END:
                    judged = min(at, judged_end)
                    stop = client_stop(
                        data, begin, separator if separator < judged else i64(-1), judged
                    )
                if separator > begin and separator + 1 < at:
                    features |= note_property(data, begin, separator, at, rows, row)
                begin = at + 1
                separator = i64(-1)
                if bit == BLOCK:
                    break
                ends = without_lowest(ends)
                separators = from_bit(separators, bit)
            block += BLOCK
        rows[row, FEATURES] = features
        if strict and any_high and not is_utf8(data, position, judged_end):
            return i64(STOP_PROPERTIES)
        return stop

    return walk


walk_properties: Final = _walk(strict=False)
walk_client_properties: Final = _walk(strict=True)
