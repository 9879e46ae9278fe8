"""One plain message, given as slices of a buffer, written as a stored record.

Plain is a message that cannot be refused for what it says: no user properties, texts of visible ASCII,
sizes below every limit. A message that is not plain is left alone. The record is the one that
``storage.log.message_encoder`` makes.

Two arrays hold the message. ``data`` has its bytes, after HEAD_SIZE bytes of the store's::

    position       content
    STORE_HOST_AT  encoded store host, IPv4
    BORN_HOST_AT   encoded born host, IPv4
    UNIQUE_AT      a made unique key: UNIQUE_HEAD_SIZE bytes are the store's, the rest is written
    HEAD_SIZE      whatever the caller has there

``fields``, of FIELD_COUNT, has the position of each text in ``data`` and at SIZES its length, and the
numbers. A producer id above 0 has the record say that it is that producer's request SEQUENCE. A length
of 0 stands for a text that is not given, and so does a born timestamp of 0; a queue id of ANY_QUEUE
leaves the choice to the store. RECORD_SIZE and the three after it are results.
"""

from __future__ import annotations

from typing import Any, Final

from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.producer_sequence import SEQUENCE_MAX, SEQUENCE_PROPERTY_SIZE
from storage.format.properties import KEY_SEPARATOR, WAIT
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    COMMIT_OFFSET_POSITION,
    FLAG_POSITION,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    TOPIC_SIZE_MAX_V1,
)
from storage.kernels.encode import ANY_QUEUE
from storage.kernels.primitives.big_endian import read_u8, write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import copy_bytes, masked_crc
from storage.kernels.primitives.jit import (
    BYTES,
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
from storage.kernels.primitives.text import text_bytes, write_hex
from storage.kernels.producer_sequences import write_sequence
from storage.kernels.properties import (
    NAME_KEYS,
    NAME_TAGS,
    NAME_UNIQ_KEY,
    write_crc_trailer,
)
from storage.kernels.record_parts import (
    record_size_of,
    write_body_and_topic,
    write_head,
    write_pair,
)

TOPIC: Final = 0
BODY: Final = 1
KEYS: Final = 2  # joined by single spaces
TAG: Final = 3
UNIQUE_KEY: Final = 4
SIZES: Final = 5
QUEUE_ID: Final = 10
FLAG: Final = 11
BORN_TIMESTAMP: Final = 12
RECORD_SIZE: Final = 13
QUEUE_OFFSET: Final = 14
COMMIT_OFFSET: Final = 15
STORE_TIMESTAMP: Final = 16
PRODUCER_ID: Final = 17
SEQUENCE: Final = 18
AGE: Final = 19
FIELD_COUNT: Final = 20

PROPERTIES_MAX: Final = 16 << 10  # below every limit on the sizes of keys, tag and unique key
MADE_KEY_SIZE: Final = 32
UNIQUE_HEAD_SIZE: Final = 12  # of a made key, by the store's address and process
_DISCRIMINATOR_SIZE: Final = 8
_MOMENT_SIZE: Final = 12

STORE_HOST_AT: Final = 0
BORN_HOST_AT: Final = STORE_HOST_AT + IPV4_HOST_SIZE
UNIQUE_AT: Final = BORN_HOST_AT + IPV4_HOST_SIZE
HEAD_SIZE: Final = UNIQUE_AT + MADE_KEY_SIZE + 16

_INT32_MAX: Final = (1 << 31) - 1
_SPACE: Final = ord(KEY_SEPARATOR)
_DELETE: Final = 0x7F
_BAR: Final = 0x7C
_WAIT_TRUE: Final = text_bytes(f"{WAIT}\x01true\x02")


@inner
def is_plain_text(data: Any, begin: int, end: int, barred: int) -> bool:
    """Whether bytes are visible ASCII without ``barred``."""
    for i in range(begin, end):
        byte = read_u8(data, i)
        if byte <= _SPACE or byte >= _DELETE or byte == barred:
            return False
    return True


@inner
def join_key(data: Any, keys_at: int, keys_end: int, size_max: int, key: int, size: int) -> int:
    """Join one more key to those from ``keys_at`` to ``keys_end``; return the new end, -1 if it cannot be."""
    if (
        size == 0
        or keys_end + 1 + size > keys_at + size_max
        or not is_plain_text(data, key, key + size, i64(0))
    ):
        return i64(-1)
    if keys_end > keys_at:
        data[uintp(keys_end)] = u8(_SPACE)
        keys_end += 1
    copy_bytes(data, keys_end, data, key, size)
    return i64(keys_end + size)


@inner
def are_plain_keys(data: Any, begin: int, end: int) -> bool:
    """Whether bytes are words of visible ASCII with one space between two."""
    follows_space = True
    for i in range(begin, end):
        byte = read_u8(data, i)
        if byte < _SPACE or byte >= _DELETE or (byte == _SPACE and follows_space):
            return False
        follows_space = byte == _SPACE
    return begin == end or not follows_space


@inner
def slices_fit(data: Any, fields: Any) -> bool:
    """Whether every slice lies in the data."""
    if fields.size != FIELD_COUNT or data.size < HEAD_SIZE:
        return False
    for text in range(SIZES):
        if not 0 <= fields[text] <= data.size:
            return False
        if not 0 <= fields[SIZES + text] <= data.size - fields[text]:
            return False
    return True


@inner
def properties_size_of(fields: Any, property_crc: bool) -> int:
    """Length of the property block of what was read."""
    unique_size = fields[SIZES + UNIQUE_KEY]
    size = NAME_UNIQ_KEY.size + 2 + _WAIT_TRUE.size
    size += unique_size if unique_size > 0 else MADE_KEY_SIZE
    if fields[PRODUCER_ID] > 0:
        size += SEQUENCE_PROPERTY_SIZE
    if fields[SIZES + KEYS] > 0:
        size += NAME_KEYS.size + 2 + fields[SIZES + KEYS]
    if fields[SIZES + TAG] > 0:
        size += NAME_TAGS.size + 2 + fields[SIZES + TAG]
    return i64(size + PROPERTY_CRC_SIZE if property_crc else size)


@inner
def size_of(fields: Any, property_crc: bool) -> int:
    """Length of the record."""
    return record_size_of(
        fields[SIZES + BODY], fields[SIZES + TOPIC], properties_size_of(fields, property_crc)
    )


@kernel(results(int64, 4)(BYTES, int64, boolean, WRITABLE_INT64S), nogil=False)
def measure_plain(
    data: Any, body_size_max: int, property_crc: bool, fields: Any
) -> tuple[int, int, int, int]:
    """Return ``(record_size, topic_begin, topic_end, queue_id)``; a size of -1 if it is not plain.

    What the topic's bytes name, and whether it has the queue, is left to the caller.
    """
    no = i64(-1), i64(0), i64(0), i64(0)
    if not slices_fit(data, fields):
        return no
    topic = fields[TOPIC]
    tag = fields[TAG]
    keys = fields[KEYS]
    unique = fields[UNIQUE_KEY]
    queue_id = fields[QUEUE_ID]
    if (
        not 0 < fields[SIZES + TOPIC] <= TOPIC_SIZE_MAX_V1
        or fields[SIZES + BODY] > body_size_max
        or properties_size_of(fields, property_crc) > PROPERTIES_MAX
        or not (queue_id == ANY_QUEUE or 0 <= queue_id <= _INT32_MAX)
        or not 0 <= fields[FLAG] <= _INT32_MAX
        or fields[BORN_TIMESTAMP] < 0
        or not 0 <= fields[SEQUENCE] <= SEQUENCE_MAX
        or (fields[PRODUCER_ID] > 0) != (fields[SEQUENCE] > 0)
        or fields[PRODUCER_ID] < 0
        or not are_plain_keys(data, keys, keys + fields[SIZES + KEYS])
        or not is_plain_text(data, tag, tag + fields[SIZES + TAG], i64(_BAR))
        or not is_plain_text(data, unique, unique + fields[SIZES + UNIQUE_KEY], i64(0))
    ):
        return no
    record_size = size_of(fields, property_crc)
    return record_size, i64(topic), i64(topic + fields[SIZES + TOPIC]), i64(queue_id)


@inner
def write_record(dst: Any, begin: int, data: Any, fields: Any, property_crc: bool) -> None:
    """Write the record; every field is set, and ``dst`` has room for it."""
    record_size = i64(fields[RECORD_SIZE])
    write_head(dst, begin, record_size, i64(fields[SIZES + TOPIC]), i64(fields[BORN_TIMESTAMP]))
    write_i32(dst, begin + QUEUE_ID_POSITION, i64(fields[QUEUE_ID]))
    write_i32(dst, begin + FLAG_POSITION, i64(fields[FLAG]))
    write_i64(dst, begin + QUEUE_OFFSET_POSITION, i64(fields[QUEUE_OFFSET]))
    write_i64(dst, begin + COMMIT_OFFSET_POSITION, i64(fields[COMMIT_OFFSET]))
    at = i64(begin + BORN_HOST_POSITION)
    copy_bytes(dst, at, data, i64(BORN_HOST_AT), i64(IPV4_HOST_SIZE))
    write_i64(dst, at + IPV4_HOST_SIZE, i64(fields[STORE_TIMESTAMP]))
    copy_bytes(dst, at + IPV4_HOST_SIZE + 8, data, i64(STORE_HOST_AT), i64(IPV4_HOST_SIZE))
    at = write_body_and_topic(
        dst, begin, data, i64(fields[BODY]), i64(fields[SIZES + BODY]), data,
        i64(fields[TOPIC]), i64(fields[SIZES + TOPIC]),
    )  # fmt: skip
    write_i16(dst, at, properties_size_of(fields, property_crc))
    keys = i64(fields[KEYS])
    tag = i64(fields[TAG])
    unique = i64(fields[UNIQUE_KEY])
    at += 2
    if fields[PRODUCER_ID] > 0:
        at = write_sequence(
            dst, at, i64(fields[PRODUCER_ID]), i64(fields[SEQUENCE]), record_size,
            i64(fields[COMMIT_OFFSET]),
        )  # fmt: skip
    at = write_pair(
        dst, at, NAME_UNIQ_KEY, i64(0), i64(NAME_UNIQ_KEY.size),
        data, unique, i64(unique + fields[SIZES + UNIQUE_KEY]),
    )  # fmt: skip
    at = write_pair(
        dst, at, NAME_KEYS, i64(0), i64(NAME_KEYS.size),
        data, keys, i64(keys + fields[SIZES + KEYS]),
    )  # fmt: skip
    copy_bytes(dst, at, _WAIT_TRUE, i64(0), i64(_WAIT_TRUE.size))
    write_pair(
        dst, at + _WAIT_TRUE.size, NAME_TAGS, i64(0), i64(NAME_TAGS.size),
        data, tag, i64(tag + fields[SIZES + TAG]),
    )  # fmt: skip
    if property_crc:
        covered = record_size - PROPERTY_CRC_SIZE
        write_crc_trailer(dst, begin + covered, masked_crc(dst, begin, covered))


@kernel(
    boolean(
        WRITABLE_BYTES, int64, WRITABLE_BYTES, WRITABLE_INT64S, int64, int64, int64, int64, int64,
        int64, boolean,
    ),
    nogil=False,
)  # fmt: skip
def write_plain(
    dst: Any, position: int, data: Any, fields: Any, queue_id: int, queue_offset: int,
    commit_offset: int, store_timestamp: int, discriminator: int, moment: int, property_crc: bool,
) -> bool:  # fmt: skip
    """Write the record of a message that is plain to ``dst`` from ``position`` on.

    The results and the queue id are set in ``fields``. A message without a unique key is given that of
    ``discriminator`` and ``moment``, milliseconds of the month and a 16-bit counter; one
    without a born timestamp is given ``store_timestamp``.

    False, with nothing changed, if the record does not fit.
    """
    if not slices_fit(data, fields) or position < 0:
        return False
    record_size = size_of(fields, property_crc)
    if record_size > dst.size - position:
        return False
    if fields[SIZES + UNIQUE_KEY] == 0:
        at = i64(UNIQUE_AT + UNIQUE_HEAD_SIZE)
        write_hex(data, at, discriminator, i64(_DISCRIMINATOR_SIZE))
        write_hex(data, at + _DISCRIMINATOR_SIZE, moment, i64(_MOMENT_SIZE))
        fields[UNIQUE_KEY] = UNIQUE_AT
        fields[SIZES + UNIQUE_KEY] = MADE_KEY_SIZE
    if fields[BORN_TIMESTAMP] == 0:
        fields[BORN_TIMESTAMP] = store_timestamp
    fields[QUEUE_ID] = queue_id
    fields[RECORD_SIZE] = record_size
    fields[QUEUE_OFFSET] = queue_offset
    fields[COMMIT_OFFSET] = commit_offset
    fields[STORE_TIMESTAMP] = store_timestamp
    write_record(dst, position, data, fields, property_crc)
    return True
