"""Whether a record is the one that a consume queue's unit stands for, and one that is asked for."""

from __future__ import annotations

from typing import Any, Final

from storage.format.properties import INNER_MULTI_QUEUE_OFFSET
from storage.kernels.columns import (
    PROPERTIES_LENGTH,
    PROPERTIES_POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZE,
    STOP_END,
    STOP_TRUNCATED,
    TOPIC_LENGTH,
    TOPIC_POSITION,
)
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.crc import bytes_equal
from storage.kernels.primitives.jit import (
    BYTES,
    apart,
    i64,
    inner,
    int64,
    kernel,
)
from storage.kernels.primitives.scratch import scratch_row
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import NAME_MULTI_DISPATCH, NAME_TAGS, property_value
from storage.kernels.scan import check_alone

CHOSEN: Final = 0
GOOD: Final = 1
FILTERED: Final = 2
DAMAGED: Final = 100
DAMAGED_LOST: Final = DAMAGED + 96  # the part of the log that the unit points into is gone
DAMAGED_OFFSET: Final = DAMAGED + 97  # a record of the queue that says another queue offset
DAMAGED_PLACE: Final = DAMAGED + 98  # a record of another topic or queue
DAMAGED_UNIT: Final = DAMAGED + 99  # the unit cannot be pointing at a record

_MULTI_QUEUE_OFFSET: Final = text_bytes(INNER_MULTI_QUEUE_OFFSET)
_COMMA: Final = ord(",")
_ZERO: Final = ord("0")


@inner
def is_one_of(data: Any, position: int, length: int, texts: Any, text_ends: Any) -> bool:
    """Whether the bytes equal one of the texts, which stand end to end in ``texts``."""
    begin = i64(0)
    for i in range(text_ends.size):
        if text_ends[i] - begin == length and bytes_equal(data, position, texts, begin, length):
            return True
        begin = text_ends[i]
    return False


@inner
def is_of_queue(log: Any, row: Any, topic: Any, queue_id: int) -> bool:
    """Whether the record of the one row belongs to the queue."""
    return (
        row[0, QUEUE_ID] == queue_id
        and row[0, TOPIC_LENGTH] == topic.size
        and bytes_equal(log, row[0, TOPIC_POSITION], topic, 0, topic.size)
    )


@inner
def has_one_of(log: Any, row: Any, tags: Any, tag_ends: Any) -> bool:
    """Whether the record of the one row has a tag, and one of these."""
    at, length = property_value(
        log, row[0, PROPERTIES_POSITION], row[0, PROPERTIES_LENGTH], NAME_TAGS
    )
    return at >= 0 and is_one_of(log, at, length, tags, tag_ends)


@inner
def token_at(data: Any, position: int, length: int, number: int) -> tuple[int, int]:
    """Position and length of a comma-separated token of a range; (-1, 0) if there are not so many."""
    begin = position
    end = position + length
    while number >= 0 and begin <= end:
        at = begin
        while at < end and read_u8(data, at) != _COMMA:
            at += 1
        if number == 0:
            return begin, at - begin
        begin = at + 1
        number -= 1
    return i64(-1), i64(0)


@apart
def is_in_light_queue(log: Any, row: Any, topic: Any, queue_offset: int) -> bool:
    """Whether the record of the one row says that it has this queue offset in a light queue."""
    position = row[0, PROPERTIES_POSITION]
    length = row[0, PROPERTIES_LENGTH]
    names, names_length = property_value(log, position, length, NAME_MULTI_DISPATCH)
    offsets, offsets_length = property_value(log, position, length, _MULTI_QUEUE_OFFSET)
    number = i64(0)
    while names >= 0 and offsets >= 0:
        at, size = token_at(log, names, names_length, number)
        if at < 0:
            break
        if size == topic.size and bytes_equal(log, at, topic, 0, size):
            digits, digit_count = token_at(log, offsets, offsets_length, number)
            if 0 < digit_count < 19:
                value = i64(0)
                for i in range(digit_count):
                    value = value * 10 + read_u8(log, digits + i) - _ZERO
                if value == queue_offset:
                    return True
        number += 1
    return False


@inner
def judge_place(
    log: Any, position: int, end: int, commit_offset: int, size: int, topic: Any, queue_id: int,
    queue_offset: int, row: Any,
) -> int:  # fmt: skip
    """GOOD if a record of ``size`` bytes in ``log[position:end]`` is intact and the unit's, or why not.

    It must be of the queue, or of any with ``queue_id`` below 0; and say the queue offset, that of a
    light queue with ``queue_id`` below 0, or any with ``queue_offset`` below 0.
    """
    if size > end - position:
        return i64(DAMAGED_UNIT)
    stop = check_alone(log, position, position + size, commit_offset, row, 0)
    if stop == STOP_END and row[0, SIZE] != size:
        stop = i64(STOP_TRUNCATED)
    if stop != STOP_END:
        return DAMAGED + stop
    if queue_id >= 0:
        if not is_of_queue(log, row, topic, queue_id):
            return i64(DAMAGED_PLACE)
        if queue_offset >= 0 and row[0, QUEUE_OFFSET] != queue_offset:
            return i64(DAMAGED_OFFSET)
    elif queue_offset >= 0 and not is_in_light_queue(log, row, topic, queue_offset):
        return i64(DAMAGED_OFFSET)
    return i64(GOOD)


@inner
def judge(
    log: Any, position: int, end: int, commit_offset: int, size: int, topic: Any, queue_id: int,
    queue_offset: int, tags: Any, tag_ends: Any, row: Any,
) -> int:  # fmt: skip
    """What :func:`judge_place` says, or FILTERED if the record is good and has none of the tags given."""
    state = judge_place(log, position, end, commit_offset, size, topic, queue_id, queue_offset, row)
    if state == GOOD and tag_ends.size > 0 and not has_one_of(log, row, tags, tag_ends):
        return i64(FILTERED)
    return state


@kernel(int64(BYTES, int64, int64, int64, int64, BYTES, int64, int64))
def place_state(
    log: Any, position: int, end: int, commit_offset: int, size: int, topic: Any, queue_id: int,
    queue_offset: int,
) -> int:  # fmt: skip
    """GOOD if an intact record of this size, queue and queue offset is at ``position``, or DAMAGED + why.

    ``log[position:end]`` is looked at; ``queue_id`` is below 0 for a light queue.
    """
    if position < 0 or end > log.size or position > end:
        return i64(DAMAGED_UNIT)
    row = scratch_row()
    return i64(
        judge_place(log, position, end, commit_offset, size, topic, queue_id, queue_offset, row)
    )
