"""A plain record that was read, written as the answer that ``delivered_messages`` makes."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages import names
from services.gateway.messages.plain_deliveries.fields import (
    ANSWER_SIZE_MAX,
    BODY,
    BORN_HOST_AT,
    BORN_HOST_TEXT,
    BORN_MS,
    DIGEST_SIZE,
    FIELD_COUNT,
    KEYS,
    MESSAGE_GROUP,
    MESSAGE_ID,
    PROPERTIES,
    QUEUE_ID,
    QUEUE_OFFSET,
    SIZES,
    STORE_HOST_AT,
    STORE_MS,
    TAG,
    TRACE_CONTEXT,
)
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.varint_kernels import DELIMITED, write_delimited, write_given_number, write_varint
from storage.format import properties
from storage.kernels.primitives.big_endian import read_i32, read_u8
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    i64,
    inner,
    int64,
    kernel,
    results,
    u8,
    uintp,
)
from storage.kernels.primitives.text import write_decimal
from storage.kernels.properties import reserved_names

_SPACE: Final = ord(properties.KEY_SEPARATOR)
_DOT: Final = ord(".")
_COLON: Final = ord(":")
_HEAD_MAX: Final = 16  # before a message: two tags and two lengths

_SYSTEM: Final = v2.SystemProperties
ANSWER_MESSAGE: Final = service_pb2.ReceiveMessageResponse.MESSAGE_FIELD_NUMBER
MESSAGE_USER: Final = v2.Message.USER_PROPERTIES_FIELD_NUMBER
MESSAGE_SYSTEM: Final = v2.Message.SYSTEM_PROPERTIES_FIELD_NUMBER
MESSAGE_BODY: Final = v2.Message.BODY_FIELD_NUMBER
SYSTEM_TAG: Final = _SYSTEM.TAG_FIELD_NUMBER
SYSTEM_KEYS: Final = _SYSTEM.KEYS_FIELD_NUMBER
SYSTEM_MESSAGE_ID: Final = _SYSTEM.MESSAGE_ID_FIELD_NUMBER
SYSTEM_DIGEST: Final = _SYSTEM.BODY_DIGEST_FIELD_NUMBER
SYSTEM_ENCODING: Final = _SYSTEM.BODY_ENCODING_FIELD_NUMBER
SYSTEM_TYPE: Final = _SYSTEM.MESSAGE_TYPE_FIELD_NUMBER
SYSTEM_BORN: Final = _SYSTEM.BORN_TIMESTAMP_FIELD_NUMBER
SYSTEM_BORN_HOST: Final = _SYSTEM.BORN_HOST_FIELD_NUMBER
SYSTEM_STORED: Final = _SYSTEM.STORE_TIMESTAMP_FIELD_NUMBER
SYSTEM_STORE_HOST: Final = _SYSTEM.STORE_HOST_FIELD_NUMBER
SYSTEM_HANDLE: Final = _SYSTEM.RECEIPT_HANDLE_FIELD_NUMBER
SYSTEM_QUEUE_ID: Final = _SYSTEM.QUEUE_ID_FIELD_NUMBER
SYSTEM_QUEUE_OFFSET: Final = _SYSTEM.QUEUE_OFFSET_FIELD_NUMBER
SYSTEM_ATTEMPT: Final = _SYSTEM.DELIVERY_ATTEMPT_FIELD_NUMBER
SYSTEM_GROUP: Final = _SYSTEM.MESSAGE_GROUP_FIELD_NUMBER
SYSTEM_TRACE: Final = _SYSTEM.TRACE_CONTEXT_FIELD_NUMBER
DIGEST_TYPE: Final = v2.Digest.TYPE_FIELD_NUMBER
DIGEST_CHECKSUM: Final = v2.Digest.CHECKSUM_FIELD_NUMBER
MD5: Final = int(v2.MD5)
IDENTITY: Final = int(v2.IDENTITY)
NORMAL: Final = int(v2.NORMAL)
FIFO: Final = int(v2.FIFO)

is_undelivered: Final = reserved_names(names.UNDELIVERED)


@inner
def write_bytes(dst: Any, at: int, field: int, src: Any, begin: int, size: int) -> int:
    """Write a field of bytes; return the position after it."""
    at = write_delimited(dst, at, field, size)
    copy_bytes(dst, at, src, begin, size)
    return i64(at + size)


@inner
def write_text_field(dst: Any, at: int, field: int, data: Any, fields: Any, text: int) -> int:
    """Write a text, left out where the message has none; return the position after it."""
    size = i64(fields[SIZES + text])
    if size == 0:
        return i64(at)
    return write_bytes(dst, at, field, data, i64(fields[text]), size)


@inner
def write_keys(dst: Any, at: int, data: Any, fields: Any) -> int:
    """Write each key; return the position after them."""
    key = i64(fields[KEYS])
    end = i64(key + fields[SIZES + KEYS])
    while key < end:
        key_end = key
        while key_end < end and read_u8(data, key_end) != _SPACE:
            key_end += 1
        if key_end > key:
            at = write_bytes(dst, at, i64(SYSTEM_KEYS), data, key, i64(key_end - key))
        key = i64(key_end + 1)
    return i64(at)


@inner
def write_time(dst: Any, at: int, field: int, time_ms: int) -> int:
    """Write a timestamp; return the position after it."""
    length_at = write_varint(dst, at, i64(field << 3 | DELIMITED))
    at = write_given_number(dst, i64(length_at + 1), i64(1), time_ms // 1_000)
    at = write_given_number(dst, at, i64(2), time_ms % 1_000 * 1_000_000)
    dst[uintp(length_at)] = u8(at - length_at - 1)
    return i64(at)


@inner
def write_host(dst: Any, at: int, field: int, data: Any, host_at: int) -> int:
    """Write an IPv4 host as text; return the position after it."""
    length_at = write_varint(dst, at, i64(field << 3 | DELIMITED))
    at = i64(length_at + 1)
    for i in range(4):
        at = write_decimal(dst, at, read_u8(data, host_at + i))
        dst[uintp(at)] = u8(_COLON if i == 3 else _DOT)
        at += 1
    at = write_decimal(dst, at, read_i32(data, i64(host_at + 4)))
    dst[uintp(length_at)] = u8(at - length_at - 1)
    return i64(at)


@inner
def write_digest(dst: Any, at: int, digest: Any) -> int:
    """Write the MD5 of the body; return the position after it."""
    length_at = write_varint(dst, at, i64(SYSTEM_DIGEST << 3 | DELIMITED))
    at = write_given_number(dst, i64(length_at + 1), i64(DIGEST_TYPE), i64(MD5))
    at = write_bytes(dst, at, i64(DIGEST_CHECKSUM), digest, i64(0), i64(digest.size))
    dst[uintp(length_at)] = u8(at - length_at - 1)
    return i64(at)


@inner
def write_system(
    dst: Any, at: int, data: Any, fields: Any, handles: Any, handle_at: int, handle_size: int,
    attempt: int, digest: Any,
) -> int:  # fmt: skip
    """Write what a message says beside its body and its user's properties; return the position after it."""
    at = write_text_field(dst, at, i64(SYSTEM_TAG), data, fields, i64(TAG))
    at = write_keys(dst, at, data, fields)
    at = write_text_field(dst, at, i64(SYSTEM_MESSAGE_ID), data, fields, i64(MESSAGE_ID))
    at = write_digest(dst, at, digest)
    at = write_given_number(dst, at, i64(SYSTEM_ENCODING), i64(IDENTITY))
    kind = i64(FIFO if fields[SIZES + MESSAGE_GROUP] > 0 else NORMAL)
    at = write_given_number(dst, at, i64(SYSTEM_TYPE), kind)
    at = write_time(dst, at, i64(SYSTEM_BORN), i64(fields[BORN_MS]))
    if fields[SIZES + BORN_HOST_TEXT] > 0:
        at = write_text_field(dst, at, i64(SYSTEM_BORN_HOST), data, fields, i64(BORN_HOST_TEXT))
    else:
        at = write_host(dst, at, i64(SYSTEM_BORN_HOST), data, i64(fields[BORN_HOST_AT]))
    at = write_time(dst, at, i64(SYSTEM_STORED), i64(fields[STORE_MS]))
    at = write_host(dst, at, i64(SYSTEM_STORE_HOST), data, i64(fields[STORE_HOST_AT]))
    at = write_bytes(dst, at, i64(SYSTEM_HANDLE), handles, handle_at, handle_size)
    at = write_given_number(dst, at, i64(SYSTEM_QUEUE_ID), i64(fields[QUEUE_ID]))
    at = write_given_number(dst, at, i64(SYSTEM_QUEUE_OFFSET), i64(fields[QUEUE_OFFSET]))
    at = write_given_number(dst, at, i64(SYSTEM_ATTEMPT), attempt)
    at = write_text_field(dst, at, i64(SYSTEM_GROUP), data, fields, i64(MESSAGE_GROUP))
    return write_text_field(dst, at, i64(SYSTEM_TRACE), data, fields, i64(TRACE_CONTEXT))


@inner
def varint_size(value: int) -> int:
    """Bytes of a number that is not negative."""
    size = i64(1)
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@inner
def write_user(dst: Any, at: int, data: Any, fields: Any) -> int:
    """Write the user's properties as a map's entries; return the position after them."""
    name = i64(fields[PROPERTIES])
    end = i64(name + fields[SIZES + PROPERTIES])
    while name < end:
        name_end = name
        while read_u8(data, name_end) != properties.NAME_END:
            name_end += 1
        value_end = i64(name_end + 1)
        while read_u8(data, value_end) != properties.PROPERTY_END:
            value_end += 1
        name_size = i64(name_end - name)
        value_size = i64(value_end - name_end - 1)
        if not is_undelivered(data, name, name_size):
            size = 2 + varint_size(name_size) + name_size + varint_size(value_size) + value_size
            at = write_delimited(dst, at, i64(MESSAGE_USER), size)
            at = write_bytes(dst, at, i64(1), data, name, name_size)
            at = write_bytes(dst, at, i64(2), data, i64(name_end + 1), value_size)
        name = i64(value_end + 1)
    return i64(at)


@kernel(
    results(int64, 2)(
        WRITABLE_BYTES, BYTES, WRITABLE_INT64S, BYTES, BYTES, int64, int64, int64, BYTES
    ),
    nogil=False,
)
def write_delivery(
    dst: Any, data: Any, fields: Any, resource: Any, handles: Any, handle_at: int, handle_size: int,
    attempt: int, digest: Any,
) -> tuple[int, int]:  # fmt: skip
    """Write the ReceiveMessageResponse of the record that was read; return where it begins and ends.

    ``resource`` is the message's first field, the topic, as bytes. (-1, -1), if it would not fit.
    """
    size_max = 4 * fields[SIZES + PROPERTIES] + fields[SIZES + BODY] + resource.size
    if (
        fields.size != FIELD_COUNT
        or dst.size != ANSWER_SIZE_MAX
        or digest.size != DIGEST_SIZE
        or not 0 <= handle_size <= handles.size - handle_at
        or handle_at < 0
        or attempt < 0
        or 2 * (size_max + handle_size) + 1024 > dst.size
    ):
        return i64(-1), i64(-1)
    half = i64(dst.size // 2)
    system_size = i64(
        write_system(dst, half, data, fields, handles, handle_at, handle_size, attempt, digest)
        - half
    )
    copy_bytes(dst, i64(_HEAD_MAX), resource, i64(0), i64(resource.size))
    at = write_user(dst, i64(_HEAD_MAX + resource.size), data, fields)
    at = write_bytes(dst, at, i64(MESSAGE_SYSTEM), dst, half, system_size)
    at = write_text_field(dst, at, i64(MESSAGE_BODY), data, fields, i64(BODY))
    size = i64(at - _HEAD_MAX)
    begin = i64(_HEAD_MAX - 1 - varint_size(size))
    write_delimited(dst, begin, i64(ANSWER_MESSAGE), size)
    return begin, i64(at)
