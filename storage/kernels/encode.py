"""Columns to records: what a client encodes one by one, made from the buffers of Arrow arrays.

A column is its bytes and its offsets, as Arrow has them: row i is ``data[offsets[i]:offsets[i + 1]]``.
Offsets of length 2 are one value for all rows, ``[0, 0]`` a column that is not there. The result is
that of ``storage.format.record.encode_for_batch`` with a reserved property CRC.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format.properties import (
    KEY_SEPARATOR,
    NAME_END,
    PROPERTIES_SIZE_MAX,
    PROPERTY_END,
    RESERVED,
)
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import QUEUE_ID_POSITION
from storage.format.stage import PREFIX_SIZE, SEQUENCE_SIZE, UNIQUE_KEY_SIZE
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32
from storage.kernels.primitives.crc import copy_bytes, masked_crc
from storage.kernels.primitives.jit import (
    BYTES,
    INT32S,
    INT64S,
    WRITABLE_BYTES,
    i64,
    inner,
    int64,
    kernel,
    results,
    u8,
    uintp,
)
from storage.kernels.primitives.text import DIGITS_MAX, decimal_size, write_hex
from storage.kernels.properties import (
    NAME_DELAY_MS,
    NAME_DELIVER_MS,
    NAME_KEYS,
    NAME_TAGS,
    NAME_UNIQ_KEY,
    is_utf8,
    reserved_names,
    write_crc_trailer,
)
from storage.kernels.record_parts import (
    record_size_of,
    write_body_and_topic,
    write_decimal_property,
    write_head,
    write_pair,
)

ANY_QUEUE: Final = -(1 << 31)  # of a row that names no queue
QUEUE_RUN: Final = 64  # rows without a key which go to one queue before the next one's turn

ENCODED: Final = 0
FULL: Final = 1
BAD_TOPIC: Final = 2
BAD_QUEUE: Final = 3
BAD_KEY: Final = 4
KEY_WITH_SPACE: Final = 5
BAD_TAG: Final = 6
TAG_WITH_BAR: Final = 7
TAG_WITH_BLANK: Final = 8
EMPTY_NAME: Final = 9
RESERVED_NAME: Final = 10
BAD_NAME: Final = 11
BAD_VALUE: Final = 12
TOO_MUCH: Final = 13
BAD_ARGUMENTS: Final = 14
BAD_DELAY: Final = 15
BAD_DELIVERY_TIME: Final = 16
TWO_DELAYS: Final = 17
DELAY_MAX: Final = 10**DIGITS_MAX - 1

_SPACE: Final = ord(KEY_SEPARATOR)
_BAR: Final = 0x7C
_FIXED_PROPERTIES: Final = NAME_UNIQ_KEY.size + UNIQUE_KEY_SIZE + 2 + PROPERTY_CRC_SIZE

is_reserved: Final = reserved_names(RESERVED)


@inner
def is_text(data: Any, begin: int, end: int) -> bool:
    """Whether bytes can be part of a property: UTF-8 without the two separators."""
    for i in range(begin, end):
        byte = data[uintp(i)]
        if NAME_END <= byte <= PROPERTY_END:
            return False
    return is_utf8(data, begin, end)


@inner
def is_blank(byte: int) -> bool:
    """Whether a byte is ASCII white space."""
    return byte == _SPACE or 0x09 <= byte <= 0x0D or 0x1C <= byte <= 0x1F


@inner
def begin_of(offsets: Any, row: int) -> int:
    """Where row ``row`` of a column begins; a column of one value has it in every row."""
    return i64(offsets[0] if offsets.size == 2 else offsets[uintp(row)])


@inner
def end_of(offsets: Any, row: int) -> int:
    """Where row ``row`` of a column ends."""
    return i64(offsets[1] if offsets.size == 2 else offsets[uintp(row + 1)])


@inner
def key_problem(data: Any, begin: int, end: int, one_key: bool) -> int:
    """What is wrong with a row's keys."""
    if not is_text(data, begin, end):
        return i64(BAD_KEY)
    if one_key:
        for i in range(begin, end):
            if data[uintp(i)] == _SPACE:
                return i64(KEY_WITH_SPACE)
    return i64(ENCODED)


@inner
def tag_problem(data: Any, begin: int, end: int) -> int:
    """What is wrong with a row's tag."""
    if begin == end:
        return i64(ENCODED)
    if not is_text(data, begin, end):
        return i64(BAD_TAG)
    if is_blank(read_u8(data, begin)) or is_blank(read_u8(data, end - 1)):
        return i64(TAG_WITH_BLANK)
    for i in range(begin, end):
        if data[uintp(i)] == _BAR:
            return i64(TAG_WITH_BAR)
    return i64(ENCODED)


@inner
def measure_pairs(row: int, pairs: Any) -> tuple[int, int]:
    """``(size, problem)`` of a row's user properties; pairs without a value are left out.

    ``pairs`` are five arrays: rows' lists of pairs, names and their offsets, values and theirs.
    """
    lists, names, name_offsets, values, value_offsets = pairs
    size = i64(0)
    first = begin_of(lists, row)
    last = end_of(lists, row)
    for pair in range(first, last):
        name = i64(name_offsets[uintp(pair)])
        name_end = i64(name_offsets[uintp(pair + 1)])
        value = i64(value_offsets[uintp(pair)])
        value_end = i64(value_offsets[uintp(pair + 1)])
        if name == name_end:
            return size, i64(EMPTY_NAME)
        if is_reserved(names, name, name_end - name):
            return size, i64(RESERVED_NAME)
        if not is_text(names, name, name_end):
            return size, i64(BAD_NAME)
        if not is_text(values, value, value_end):
            return size, i64(BAD_VALUE)
        if value < value_end:
            size += name_end - name + value_end - value + 2
    return size, i64(ENCODED)


@inner
def write_pairs(dst: Any, at: int, row: int, pairs: Any) -> int:
    """Write a row's user properties; return the position after them."""
    lists, names, name_offsets, values, value_offsets = pairs
    first = begin_of(lists, row)
    last = end_of(lists, row)
    for pair in range(first, last):
        at = write_pair(
            dst, at, names, i64(name_offsets[uintp(pair)]), i64(name_offsets[uintp(pair + 1)]),
            values, i64(value_offsets[uintp(pair)]), i64(value_offsets[uintp(pair + 1)]),
        )  # fmt: skip
    return i64(at)


@inner
def choose_queue(
    queue_ids: Any, row: int, queue_count: int, keys: Any, begin: int, end: int, number: int
) -> int:
    """The queue a row names, or by its keys, or of a row without keys the next in turn; or -1."""
    if queue_ids.size > 0:
        queue_id = i64(queue_ids[uintp(0 if queue_ids.size == 1 else row)])
        if queue_id != ANY_QUEUE:
            return queue_id if 0 <= queue_id < queue_count else i64(-1)
    if begin < end:
        return masked_crc(keys, begin, end - begin) % queue_count
    return (number // QUEUE_RUN) % queue_count


@inner
def write_unique_key(dst: Any, at: int, prefix: Any, sequence: int) -> int:
    """Write the unique key's property: prefix and number; return the position after it."""
    copy_bytes(dst, at, NAME_UNIQ_KEY, i64(0), NAME_UNIQ_KEY.size)
    at += NAME_UNIQ_KEY.size
    dst[uintp(at)] = u8(NAME_END)
    copy_bytes(dst, at + 1, prefix, i64(0), PREFIX_SIZE)
    at += 1 + PREFIX_SIZE
    write_hex(dst, at, sequence, i64(SEQUENCE_SIZE))
    at += SEQUENCE_SIZE
    dst[uintp(at)] = u8(PROPERTY_END)
    return i64(at + 1)


@inner
def delay_of(delays: Any, delivery_times: Any, row: int) -> tuple[int, int, int]:
    """``(delay, time of delivery, problem)`` of a row, both in milliseconds; 0: none, of one at least."""
    delay = i64(delays[uintp(row)] if delays.size > 0 else 0)
    delivery_time = i64(delivery_times[uintp(row)] if delivery_times.size > 0 else 0)
    problem = i64(ENCODED)
    if delay < 0 or delay > DELAY_MAX:
        problem = i64(BAD_DELAY)
    elif delivery_time < 0 or delivery_time > DELAY_MAX:
        problem = i64(BAD_DELIVERY_TIME)
    elif delay > 0 and delivery_time > 0:
        problem = i64(TWO_DELAYS)
    return delay, delivery_time, problem


@inner
def delay_size(delay: int, delivery_time: int) -> int:
    """Return how many bytes a row's delay takes as a property."""
    if delay > 0:
        return i64(NAME_DELAY_MS.size + decimal_size(delay) + 2)
    if delivery_time > 0:
        return i64(NAME_DELIVER_MS.size + decimal_size(delivery_time) + 2)
    return i64(0)


@inner
def write_delay(dst: Any, at: int, delay: int, delivery_time: int) -> int:
    """Write a row's delay, if it has one; return the position after it."""
    if delay > 0:
        return write_decimal_property(dst, at, NAME_DELAY_MS, delay)
    if delivery_time > 0:
        return write_decimal_property(dst, at, NAME_DELIVER_MS, delivery_time)
    return i64(at)


@inner
def measure_properties(
    row: int, keys: Any, key: int, key_end: int, one_key: bool, tags: Any, tag: int, tag_end: int,
    pairs: Any, pairs2: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """``(size, problem, property set at fault)`` of all properties of a row."""
    problem = key_problem(keys, key, key_end, one_key)
    if problem == ENCODED:
        problem = tag_problem(tags, tag, tag_end)
    if problem != ENCODED:
        return i64(0), problem, i64(0)
    size, problem = measure_pairs(row, pairs)
    if problem != ENCODED:
        return size, problem, i64(0)
    size2, problem = measure_pairs(row, pairs2)
    size += size2 + _FIXED_PROPERTIES
    if key < key_end:
        size += NAME_KEYS.size + key_end - key + 2
    if tag < tag_end:
        size += NAME_TAGS.size + tag_end - tag + 2
    return size, problem, i64(1)


@inner
def write_properties(
    dst: Any, at: int, size: int, prefix: Any, sequence: int, row: int, keys: Any, key: int,
    key_end: int, tags: Any, tag: int, tag_end: int, delay: int, delivery_time: int, pairs: Any,
    pairs2: Any,
) -> int:  # fmt: skip
    """Write a row's property block after its length; return the position after it."""
    write_i16(dst, at, size)
    at = write_unique_key(dst, at + 2, prefix, sequence)
    at = write_pair(dst, at, NAME_KEYS, i64(0), i64(NAME_KEYS.size), keys, key, key_end)
    at = write_pair(dst, at, NAME_TAGS, i64(0), i64(NAME_TAGS.size), tags, tag, tag_end)
    at = write_delay(dst, at, delay, delivery_time)
    at = write_pairs(dst, at, row, pairs)
    at = write_pairs(dst, at, row, pairs2)
    write_crc_trailer(dst, at, i64(0))
    return i64(at + PROPERTY_CRC_SIZE)


@kernel(
    results(int64, 4)(
        WRITABLE_BYTES, int64, int64, int64, BYTES, INT32S, INT32S, BYTES, INT32S, INT64S, INT32S,
        BYTES, INT32S, int64, BYTES, INT32S, INT32S, BYTES, INT32S, BYTES, INT32S, INT32S, BYTES,
        INT32S, BYTES, INT32S, INT64S, INT64S, BYTES, int64, int64, int64,
    )
)  # fmt: skip
def encode_rows(
    dst: Any, limit: int, first_row: int, end_row: int,
    bodies: Any, body_offsets: Any,
    topic_of: Any, topics: Any, topic_offsets: Any, queue_counts: Any, queue_ids: Any,
    keys: Any, key_offsets: Any, one_key: int,
    tags: Any, tag_offsets: Any,
    lists: Any, names: Any, name_offsets: Any, values: Any, value_offsets: Any,
    lists2: Any, names2: Any, name_offsets2: Any, values2: Any, value_offsets2: Any,
    delays: Any, delivery_times: Any,
    prefix: Any, first_sequence: int, first_number: int, born_timestamp_ms: int,
) -> tuple[int, int, int, int]:  # fmt: skip
    """Encode rows from ``first_row`` on, as many of those before ``end_row`` as fit.

    ``topic_of[i]`` (length 1: of all rows) is the row's topic among ``topics``, of which topic t has
    ``queue_counts[t]`` queues. ``queue_ids`` is empty, one for all rows, or one each, ANY_QUEUE
    for none. ``one_key`` says that ``keys`` holds one key a row and not several joined by spaces. Two
    sets of user properties may be given. ``delays`` and ``delivery_times`` are empty, or milliseconds of each
    row, 0 for none. The unique keys are ``prefix`` and numbers from
    ``first_sequence`` on; ``first_number`` numbers the rows for the turn of the queues.

    Fills ``dst`` up to ``limit`` bytes, further only for a single record. Returns ``(next_row, size,
    problem, detail)``: ENCODED when all rows are done; FULL when ``next_row`` did not fit, which
    needs ``detail`` bytes; otherwise ``next_row`` is a row that cannot be a record, in the property
    set ``detail`` where that is at fault. The offsets are trusted: they are Arrow's.
    """
    row = i64(first_row)
    at = i64(0)
    if prefix.size != PREFIX_SIZE or limit > dst.size:
        return row, at, i64(BAD_ARGUMENTS), i64(0)
    pairs = lists, names, name_offsets, values, value_offsets
    pairs2 = lists2, names2, name_offsets2, values2, value_offsets2
    while row < end_row:
        topic = i64(topic_of[uintp(0 if topic_of.size == 1 else row)])
        if topic < 0 or topic >= queue_counts.size:
            return row, at, i64(BAD_TOPIC), i64(0)
        key = begin_of(key_offsets, row)
        key_end = end_of(key_offsets, row)
        tag = begin_of(tag_offsets, row)
        tag_end = end_of(tag_offsets, row)
        properties_size, problem, at_fault = measure_properties(
            row, keys, key, key_end, one_key != 0, tags, tag, tag_end, pairs, pairs2
        )
        if problem != ENCODED:
            return row, at, problem, at_fault
        delay, delivery_time, problem = delay_of(delays, delivery_times, row)
        if problem != ENCODED:
            return row, at, problem, i64(0)
        properties_size += delay_size(delay, delivery_time)
        number = first_number + row - first_row
        queue_id = choose_queue(
            queue_ids, row, queue_counts[uintp(topic)], keys, key, key_end, number
        )
        if queue_id < 0:
            return row, at, i64(BAD_QUEUE), i64(0)
        if properties_size > PROPERTIES_SIZE_MAX:
            return row, at, i64(TOO_MUCH), properties_size
        topic_begin = i64(topic_offsets[uintp(topic)])
        topic_length = i64(topic_offsets[uintp(topic + 1)]) - topic_begin
        body = begin_of(body_offsets, row)
        body_length = end_of(body_offsets, row) - body
        record_size = record_size_of(body_length, topic_length, properties_size)
        if at + record_size > limit:
            return row, at, i64(FULL), i64(record_size)
        write_head(dst, at, record_size, topic_length, born_timestamp_ms)
        write_i32(dst, at + QUEUE_ID_POSITION, queue_id)
        at = write_body_and_topic(
            dst, at, bodies, body, body_length, topics, topic_begin, topic_length
        )
        at = write_properties(
            dst, at, properties_size, prefix, first_sequence + row - first_row, row,
            keys, key, key_end, tags, tag, tag_end, delay, delivery_time, pairs, pairs2,
        )  # fmt: skip
        row += 1
    return row, at, i64(ENCODED), i64(0)
