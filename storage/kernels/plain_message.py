"""One plain message from a serialized request to a stored record and a serialized answer.

Plain is a request that holds one message of which nothing has to be judged: known fields only, each
once and in its shortest form, no user properties, texts of visible ASCII, sizes below every limit.
What is not plain is none of this module's business. The bytes of the request and of the answer are
those of ``ProduceRequest`` and ``ProduceResponse``; the record is what ``storage.log.structured`` makes.

Both kernels work on one array of SCRATCH_SIZE bytes, so that little memory is touched::

    position       content
    STORE_HOST_AT  encoded store host, IPv4
    BORN_HOST_AT   encoded born host, IPv4
    UNIQUE_AT      a made unique key: UNIQUE_HEAD_SIZE bytes are the caller's, the rest is written
    ANSWER_AT      the answer
    KEYS_AT        the keys, joined
    REQUEST_AT     the request
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.properties import KEY_SEPARATOR, WAIT
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    COMMIT_OFFSET_POSITION,
    FLAG_POSITION,
    MAGIC_V1,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    TOPIC_SIZE_MAX_V1,
)
from storage.kernels.encode import (
    ANY_QUEUE,
    write_body_and_topic,
    write_head,
    write_hex,
    write_pair,
)
from storage.kernels.primitives.big_endian import read_i64, read_u8, write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import copy_bytes, masked_crc
from storage.kernels.primitives.jit import (
    FEW_BYTES,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    boolean,
    i64,
    inner,
    int64,
    kernel,
    results,
    u8,
    uintp,
)
from storage.kernels.properties import (
    NAME_KEYS,
    NAME_TAGS,
    NAME_UNIQ_KEY,
    write_crc_trailer,
)

# Field numbers of the contract: ProduceRequest, Message, ProduceResponse, ProduceResult.
MESSAGES: Final = 1
TOPIC: Final = 1
BODY: Final = 2
KEYS: Final = 3
TAG: Final = 4
QUEUE_ID: Final = 6
UNIQUE_KEY: Final = 7
FLAG: Final = 8
BORN_TIMESTAMP: Final = 9
RESULTS: Final = 1
RESULT_TOPIC: Final = 1
RESULT_QUEUE_ID: Final = 2
RESULT_QUEUE_OFFSET: Final = 3
RESULT_COMMIT_OFFSET: Final = 4
RESULT_MESSAGE_ID: Final = 5
RESULT_UNIQUE_KEY: Final = 6
RESULT_STORE_TIMESTAMP: Final = 7

REQUEST_SIZE_MAX: Final = FEW_BYTES
PROPERTIES_MAX: Final = 16 << 10  # below every limit on the sizes of keys, tag and unique key
MADE_KEY_SIZE: Final = 32
UNIQUE_HEAD_SIZE: Final = 12  # of a made key, by the store's address and process
_DISCRIMINATOR_SIZE: Final = 8
_MOMENT_SIZE: Final = 12
_MESSAGE_ID_SIZE: Final = 32

STORE_HOST_AT: Final = 0
BORN_HOST_AT: Final = STORE_HOST_AT + IPV4_HOST_SIZE
UNIQUE_AT: Final = BORN_HOST_AT + IPV4_HOST_SIZE
ANSWER_AT: Final = UNIQUE_AT + MADE_KEY_SIZE + 16
_RESULT_AT: Final = ANSWER_AT + 8  # behind the longest head of a result
KEYS_AT: Final = _RESULT_AT + PROPERTIES_MAX + 512
REQUEST_AT: Final = KEYS_AT + PROPERTIES_MAX
SCRATCH_SIZE: Final = REQUEST_AT + REQUEST_SIZE_MAX

# What was read of a message: by field number its value, or its position and at SIZES its length.
RECORD_SIZE: Final = 0
SIZES: Final = 16
FIELD_COUNT: Final = 32

_VARINT: Final = 0
_DELIMITED: Final = 2
_PIECES: Final = 1 << TOPIC | 1 << BODY | 1 << KEYS | 1 << TAG | 1 << UNIQUE_KEY
_NUMBERS: Final = 1 << QUEUE_ID | 1 << FLAG | 1 << BORN_TIMESTAMP
_INT32_MAX: Final = (1 << 31) - 1
_SPACE: Final = ord(KEY_SEPARATOR)
_DELETE: Final = 0x7F
_BAR: Final = 0x7C
_WAIT_TRUE: Final = np.frombuffer(f"{WAIT}\x01true\x02".encode(), np.uint8)


@inner
def read_varint(data: Any, at: int, end: int) -> tuple[int, int]:
    """``(value, position behind it)`` of a varint in its shortest form below 2**63; or (0, -1)."""
    value = i64(0)
    shift = i64(0)
    while at < end and shift < 63:
        byte = read_u8(data, at)
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift > 0:
                break
            return value, i64(at)
        shift += 7
    return i64(0), i64(-1)


@inner
def is_plain_text(data: Any, begin: int, end: int, barred: int) -> bool:
    """Whether bytes are visible ASCII without ``barred``."""
    for i in range(begin, end):
        byte = read_u8(data, i)
        if byte <= _SPACE or byte >= _DELETE or byte == barred:
            return False
    return True


@inner
def add_key(scratch: Any, keys_end: int, key: int, size: int) -> int:
    """Join one more key to those that end at ``keys_end``; return the new end, -1 if it cannot be."""
    if (
        size == 0
        or keys_end + 1 + size > KEYS_AT + PROPERTIES_MAX
        or not is_plain_text(scratch, key, key + size, i64(0))
    ):
        return i64(-1)
    if keys_end > KEYS_AT:
        scratch[uintp(keys_end)] = u8(_SPACE)
        keys_end += 1
    copy_bytes(scratch, keys_end, scratch, key, size)
    return i64(keys_end + size)


@inner
def read_fields(scratch: Any, at: int, end: int, fields: Any) -> bool:
    """Read the fields of a message; False unless each is known and there once."""
    for i in range(FIELD_COUNT):
        fields[i] = 0
    seen = i64(0)
    keys_end = i64(KEYS_AT)
    while at < end:
        tag = read_u8(scratch, at)
        value, at = read_varint(scratch, at + 1, end)
        number = tag >> 3
        field = i64(1) << number
        if at < 0 or seen & field:
            return False
        if tag & 7 == _DELIMITED:
            if field & _PIECES == 0 or value > end - at:
                return False
            if number == KEYS:
                keys_end = add_key(scratch, keys_end, at, value)
                if keys_end < 0:
                    return False
                field = i64(0)
            else:
                fields[number] = at
                fields[SIZES + number] = value
            at += value
        elif tag & 7 == _VARINT and field & _NUMBERS:
            fields[number] = value
        else:
            return False
        seen |= field
    if seen & (1 << QUEUE_ID) == 0:
        fields[QUEUE_ID] = ANY_QUEUE
    fields[KEYS] = KEYS_AT
    fields[SIZES + KEYS] = keys_end - KEYS_AT
    return True


@inner
def properties_size_of(fields: Any, property_crc: bool) -> int:
    """Length of the property block of what was read."""
    unique_size = fields[SIZES + UNIQUE_KEY]
    size = NAME_UNIQ_KEY.size + 2 + _WAIT_TRUE.size
    size += unique_size if unique_size > 0 else MADE_KEY_SIZE
    if fields[SIZES + KEYS] > 0:
        size += NAME_KEYS.size + 2 + fields[SIZES + KEYS]
    if fields[SIZES + TAG] > 0:
        size += NAME_TAGS.size + 2 + fields[SIZES + TAG]
    return i64(size + PROPERTY_CRC_SIZE if property_crc else size)


@kernel(
    results(int64, 4)(WRITABLE_BYTES, int64, int64, boolean, WRITABLE_INT64S),
    nogil=False,
)
def read_plain(
    scratch: Any, request_size: int, body_size_max: int, property_crc: bool, fields: Any
) -> tuple[int, int, int, int]:
    """Read the request at REQUEST_AT of ``scratch`` into ``fields``, of FIELD_COUNT.

    Returns ``(record_size, topic_begin, topic_end, queue_id)``, ANY_QUEUE if it names none; a
    record size of -1 if the request is not plain. The topic's bytes are the caller's to judge.
    """
    no = i64(-1), i64(0), i64(0), i64(0)
    if (
        scratch.size != SCRATCH_SIZE
        or fields.size != FIELD_COUNT
        or not 0 < request_size <= REQUEST_SIZE_MAX
        or read_u8(scratch, REQUEST_AT) != MESSAGES << 3 | _DELIMITED
    ):
        return no
    end = REQUEST_AT + request_size
    size, at = read_varint(scratch, i64(REQUEST_AT + 1), end)
    if at < 0 or size != end - at or not read_fields(scratch, at, end, fields):
        return no
    topic = fields[TOPIC]
    topic_size = fields[SIZES + TOPIC]
    tag = fields[TAG]
    unique = fields[UNIQUE_KEY]
    properties_size = properties_size_of(fields, property_crc)
    if (
        not 0 < topic_size <= TOPIC_SIZE_MAX_V1
        or fields[SIZES + BODY] > body_size_max
        or properties_size > PROPERTIES_MAX
        or fields[QUEUE_ID] > _INT32_MAX
        or fields[FLAG] > _INT32_MAX
        or not is_plain_text(scratch, tag, tag + fields[SIZES + TAG], i64(_BAR))
        or not is_plain_text(scratch, unique, unique + fields[SIZES + UNIQUE_KEY], i64(0))
    ):
        return no
    record_size = RECORD_SIZE_MIN + fields[SIZES + BODY] + topic_size + properties_size
    fields[RECORD_SIZE] = record_size
    return i64(record_size), i64(topic), i64(topic + topic_size), i64(fields[QUEUE_ID])


@inner
def write_varint(dst: Any, at: int, value: int) -> int:
    """Write ``value`` as protobuf does, at most ten bytes; return the position behind it."""
    while value & ~0x7F:
        dst[uintp(at)] = u8(value & 0x7F | 0x80)
        value = (value >> 7) & 0x01FF_FFFF_FFFF_FFFF
        at += 1
    dst[uintp(at)] = u8(value)
    return i64(at + 1)


@inner
def write_number(dst: Any, at: int, field: int, value: int) -> int:
    """Write a number's field, left out where it is 0; return the position behind it."""
    if value == 0:
        return i64(at)
    dst[uintp(at)] = u8(field << 3 | _VARINT)
    return write_varint(dst, at + 1, value)


@inner
def write_delimited(dst: Any, at: int, field: int, size: int) -> int:
    """Write what goes before a field of ``size`` bytes; return the position behind it."""
    dst[uintp(at)] = u8(field << 3 | _DELIMITED)
    return write_varint(dst, at + 1, size)


@inner
def write_record(
    dst: Any, begin: int, scratch: Any, fields: Any, queue_id: int, queue_offset: int,
    commit_offset: int, store_timestamp: int, property_crc: bool,
) -> None:  # fmt: skip
    """Write the record of what was read; ``dst`` has room for it."""
    record_size = i64(fields[RECORD_SIZE])
    born_timestamp = i64(fields[BORN_TIMESTAMP])
    if born_timestamp == 0:
        born_timestamp = i64(store_timestamp)
    write_head(dst, begin, record_size, i64(MAGIC_V1), born_timestamp)
    write_i32(dst, begin + QUEUE_ID_POSITION, queue_id)
    write_i32(dst, begin + FLAG_POSITION, i64(fields[FLAG]))
    write_i64(dst, begin + QUEUE_OFFSET_POSITION, queue_offset)
    write_i64(dst, begin + COMMIT_OFFSET_POSITION, commit_offset)
    at = i64(begin + BORN_HOST_POSITION)
    copy_bytes(dst, at, scratch, i64(BORN_HOST_AT), i64(IPV4_HOST_SIZE))
    write_i64(dst, at + IPV4_HOST_SIZE, store_timestamp)
    copy_bytes(dst, at + IPV4_HOST_SIZE + 8, scratch, i64(STORE_HOST_AT), i64(IPV4_HOST_SIZE))
    at = write_body_and_topic(
        dst, begin, scratch, i64(fields[BODY]), i64(fields[SIZES + BODY]), scratch,
        i64(fields[TOPIC]), i64(fields[SIZES + TOPIC]), False,
    )  # fmt: skip
    write_i16(dst, at, properties_size_of(fields, property_crc))
    unique = i64(fields[UNIQUE_KEY])
    tag = i64(fields[TAG])
    at = write_pair(
        dst, at + 2, NAME_UNIQ_KEY, i64(0), i64(NAME_UNIQ_KEY.size),
        scratch, unique, i64(unique + fields[SIZES + UNIQUE_KEY]),
    )  # fmt: skip
    at = write_pair(
        dst, at, NAME_KEYS, i64(0), i64(NAME_KEYS.size),
        scratch, i64(KEYS_AT), i64(KEYS_AT + fields[SIZES + KEYS]),
    )  # fmt: skip
    copy_bytes(dst, at, _WAIT_TRUE, i64(0), i64(_WAIT_TRUE.size))
    write_pair(
        dst, at + _WAIT_TRUE.size, NAME_TAGS, i64(0), i64(NAME_TAGS.size),
        scratch, tag, i64(tag + fields[SIZES + TAG]),
    )  # fmt: skip
    if property_crc:
        covered = record_size - PROPERTY_CRC_SIZE
        write_crc_trailer(dst, begin + covered, masked_crc(dst, begin, covered))


@inner
def write_answer(
    scratch: Any, fields: Any, queue_id: int, queue_offset: int, commit_offset: int,
    store_timestamp: int,
) -> tuple[int, int]:  # fmt: skip
    """Write the answer; return where it begins and ends in ``scratch``."""
    topic_size = i64(fields[SIZES + TOPIC])
    unique_size = i64(fields[SIZES + UNIQUE_KEY])
    at = write_delimited(scratch, i64(_RESULT_AT), i64(RESULT_TOPIC), topic_size)
    copy_bytes(scratch, at, scratch, i64(fields[TOPIC]), topic_size)
    at = write_number(scratch, at + topic_size, i64(RESULT_QUEUE_ID), queue_id)
    at = write_number(scratch, at, i64(RESULT_QUEUE_OFFSET), queue_offset)
    at = write_number(scratch, at, i64(RESULT_COMMIT_OFFSET), commit_offset)
    at = write_delimited(scratch, at, i64(RESULT_MESSAGE_ID), i64(_MESSAGE_ID_SIZE))
    write_hex(scratch, at, read_i64(scratch, i64(STORE_HOST_AT)), i64(16))
    write_hex(scratch, at + 16, commit_offset, i64(16))
    at = write_delimited(scratch, at + 32, i64(RESULT_UNIQUE_KEY), unique_size)
    copy_bytes(scratch, at, scratch, i64(fields[UNIQUE_KEY]), unique_size)
    at = write_number(scratch, at + unique_size, i64(RESULT_STORE_TIMESTAMP), store_timestamp)
    size = i64(at - _RESULT_AT)
    head = i64(2 if size < 1 << 7 else (3 if size < 1 << 14 else 4))
    write_delimited(scratch, i64(_RESULT_AT - head), i64(RESULTS), size)
    return i64(_RESULT_AT - head), i64(at)


@kernel(
    results(int64, 2)(
        WRITABLE_BYTES, int64, WRITABLE_BYTES, WRITABLE_INT64S, int64, int64, int64, int64, int64,
        int64, boolean,
    ),
    nogil=False,
)  # fmt: skip
def write_plain(
    dst: Any, position: int, scratch: Any, fields: Any, queue_id: int, queue_offset: int,
    commit_offset: int, store_timestamp: int, discriminator: int, moment: int, property_crc: bool,
) -> tuple[int, int]:  # fmt: skip
    """Write the record of what :func:`read_plain` read to ``dst`` from ``position`` on.

    ``property_crc`` is what it was read with. A message without a unique key gets that of
    ``discriminator`` and ``moment``: milliseconds of the month and a 16-bit counter; one without a
    born timestamp gets ``store_timestamp``.

    Returns where the answer begins and ends in ``scratch``; (-1, -1) with nothing changed if the
    record would not fit.
    """
    if (
        scratch.size != SCRATCH_SIZE
        or fields.size != FIELD_COUNT
        or position < 0
        or fields[RECORD_SIZE] < RECORD_SIZE_MIN
        or fields[RECORD_SIZE] > dst.size - position
    ):
        return i64(-1), i64(-1)
    if fields[SIZES + UNIQUE_KEY] == 0:
        at = i64(UNIQUE_AT + UNIQUE_HEAD_SIZE)
        write_hex(scratch, at, discriminator, i64(_DISCRIMINATOR_SIZE))
        write_hex(scratch, at + _DISCRIMINATOR_SIZE, moment, i64(_MOMENT_SIZE))
        fields[UNIQUE_KEY] = UNIQUE_AT
        fields[SIZES + UNIQUE_KEY] = MADE_KEY_SIZE
    write_record(
        dst, position, scratch, fields, queue_id, queue_offset, commit_offset, store_timestamp,
        property_crc,
    )  # fmt: skip
    return write_answer(scratch, fields, queue_id, queue_offset, commit_offset, store_timestamp)
