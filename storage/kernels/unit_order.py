"""The order of consume queue units: which of them can be believed before their records were seen.

Commit offsets do not fall within a queue. A unit is *in order* if it points somewhere, not below both of
the two units before it, as far as those point somewhere, and not above both of the two after it: a wrong unit
is out of order, and makes no other one so. Unit numbers count from the start of the array.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format.consume_entry import PREFILL_SIZE, SIZE_IN_UNIT, UNIT_SIZE
from storage.kernels.primitives.big_endian import read_i32, read_i64
from storage.kernels.primitives.jit import BYTES, i64, inner, int64, kernel

LOOK_AHEAD: Final = 256  # units after one that is not there: more than a page holds
UNITS_BESIDE: Final = 2  # are looked at on each side
_EVERYTHING: Final = (1 << 63) - 1


@inner
def points_somewhere(units: Any, index: int) -> bool:
    """Whether a unit's offset is not negative and its size above 0."""
    position = index * UNIT_SIZE
    return bool(read_i64(units, position) >= 0 and read_i32(units, position + SIZE_IN_UNIT) > 0)


@inner
def is_in_order(units: Any, index: int) -> bool:
    """Whether the unit is in order with those beside it in the array."""
    if not points_somewhere(units, index):
        return False
    count = units.size // UNIT_SIZE
    commit_offset = read_i64(units, index * UNIT_SIZE)
    size = read_i32(units, index * UNIT_SIZE + SIZE_IN_UNIT)
    is_first_record = commit_offset == 0 and size != PREFILL_SIZE
    if is_first_record and index > 0 and not points_somewhere(units, index - 1):
        return False  # in front of the log's first record are pre-fill units, or none
    lowest = i64(_EVERYTHING)
    highest = i64(-1)
    after_count = i64(0)
    for distance in range(1, UNITS_BESIDE + 1):
        before = index - distance
        if before >= 0 and points_somewhere(units, before):
            lowest = min(lowest, read_i64(units, before * UNIT_SIZE))
        after = index + distance
        if after < count and points_somewhere(units, after):
            highest = max(highest, read_i64(units, after * UNIT_SIZE))
            after_count += 1
    if lowest != _EVERYTHING and commit_offset < lowest:
        return False
    # The last unit alone says nothing against those before it: it may be half written.
    return bool(commit_offset <= highest or after_count < UNITS_BESIDE)


@inner
def is_visible(units: Any, index: int, visible_commit_offset: int) -> bool:
    """Whether a unit points at something that ends at or before an offset; pre-fill units do."""
    commit_offset = read_i64(units, index * UNIT_SIZE)
    size = read_i32(units, index * UNIT_SIZE + SIZE_IN_UNIT)
    if commit_offset < 0 or size <= 0:
        return False
    if size == PREFILL_SIZE:
        return True
    return bool(
        commit_offset < visible_commit_offset and size <= visible_commit_offset - commit_offset
    )


@inner
def last_visible(units: Any, begin: int, end: int, visible_commit_offset: int) -> int:
    """Index after the last unit of ``units[begin:end]`` that is visible and in order, or ``begin``."""
    index = i64(end)
    while index > begin:
        if is_visible(units, index - 1, visible_commit_offset) and is_in_order(units, index - 1):
            return index
        index -= 1
    return i64(begin)


@kernel(int64(BYTES, int64, int64, int64))
def visible_end(units: Any, begin: int, end: int, visible_commit_offset: int) -> int:
    """Index after the last unit of ``units[begin:end]`` that is visible and in order, or ``begin``.

    A unit is visible when what it points at ends at or before ``visible_commit_offset``; pre-fill
    units are.
    """
    if begin < 0 or end * UNIT_SIZE > units.size:
        return i64(begin)
    return last_visible(units, begin, end, visible_commit_offset)


@kernel(int64(BYTES, int64, int64))
def first_in_order(units: Any, begin: int, end: int) -> int:
    """Index of the first unit of ``units[begin:end]`` that is in order, ``end`` if none is."""
    if begin < 0 or end * UNIT_SIZE > units.size:
        return i64(end)
    index = i64(begin)
    while index < end and not is_in_order(units, index):
        index += 1
    return index


@kernel(int64(BYTES, int64, int64))
def last_in_order(units: Any, begin: int, end: int) -> int:
    """Index of the last unit of ``units[begin:end]`` that is in order, ``begin - 1`` if none is."""
    if begin < 0 or end * UNIT_SIZE > units.size:
        return i64(begin) - 1
    index = i64(end) - 1
    while index >= begin and not is_in_order(units, index):
        index -= 1
    return index
