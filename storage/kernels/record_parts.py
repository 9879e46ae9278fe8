"""The parts of a record, written: head, body, topic, properties. Whoever writes a record puts them together."""

from __future__ import annotations

from typing import Any, Final

from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.properties import NAME_END, PROPERTY_END
from storage.format.record_layout import (
    AFTER_HOSTS,
    BODY_CRC_POSITION,
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    MAGIC_V2,
    PROPERTIES_LENGTH,
    STORE_TIMESTAMP,
    TOPIC_SIZE_MAX_V1,
)
from storage.kernels.primitives.big_endian import write_i16, write_i32, write_i64
from storage.kernels.primitives.crc import copy_bytes, masked_crc
from storage.kernels.primitives.jit import i64, inner, u8, uintp
from storage.kernels.primitives.text import write_decimal

BODY_AT: Final = BORN_HOST_POSITION + 2 * IPV4_HOST_SIZE + STORE_TIMESTAMP.size + AFTER_HOSTS.size
BODY_LENGTH_AT: Final = BODY_AT - 4
_LENGTH_SIZE: Final = PROPERTIES_LENGTH.size


@inner
def magic_of(topic_length: int) -> int:
    """Magic number of the version that a topic needs."""
    return i64(MAGIC_V1) if topic_length <= TOPIC_SIZE_MAX_V1 else i64(MAGIC_V2)


@inner
def topic_field(length: int) -> int:
    """Bytes that a topic takes in a record, its length included."""
    return i64(length + (1 if length <= TOPIC_SIZE_MAX_V1 else 2))


@inner
def record_size_of(body_length: int, topic_length: int, properties_size: int) -> int:
    """Bytes of a record with IPv4 hosts."""
    return i64(BODY_AT + body_length + topic_field(topic_length) + _LENGTH_SIZE + properties_size)


@inner
def write_head(
    dst: Any, at: int, record_size: int, topic_length: int, born_timestamp_ms: int
) -> None:
    """Write what comes before the body, all that the store sets as zeros."""
    for i in range(BODY_AT):
        dst[uintp(at + i)] = u8(0)
    write_i32(dst, at, record_size)
    write_i32(dst, at + MAGIC_POSITION, magic_of(topic_length))
    write_i64(dst, at + BORN_TIMESTAMP_POSITION, born_timestamp_ms)


@inner
def write_topic(dst: Any, at: int, topics: Any, topic: int, length: int) -> int:
    """Write the topic and its length; return the position after it."""
    if length > TOPIC_SIZE_MAX_V1:
        write_i16(dst, at, length)
        at += 2
    else:
        dst[uintp(at)] = u8(length)
        at += 1
    copy_bytes(dst, at, topics, topic, length)
    return i64(at + length)


@inner
def write_body_and_topic(
    dst: Any, at: int, bodies: Any, body: int, body_length: int, topics: Any, topic: int,
    topic_length: int,
) -> int:  # fmt: skip
    """Write the body with its CRC and length, and the topic; return the position after them."""
    write_i32(dst, at + BODY_CRC_POSITION, masked_crc(bodies, body, body_length))
    write_i32(dst, at + BODY_LENGTH_AT, body_length)
    at += BODY_AT
    copy_bytes(dst, at, bodies, body, body_length)
    at += body_length
    return write_topic(dst, at, topics, topic, topic_length)


@inner
def write_pair(
    dst: Any, at: int, name: Any, name_begin: int, name_end: int, value: Any, begin: int, end: int
) -> int:
    """Write one property; return the position after it. One without a value is left out."""
    if begin == end:
        return i64(at)
    copy_bytes(dst, at, name, name_begin, name_end - name_begin)
    at += name_end - name_begin
    dst[uintp(at)] = u8(NAME_END)
    copy_bytes(dst, at + 1, value, begin, end - begin)
    at += 1 + end - begin
    dst[uintp(at)] = u8(PROPERTY_END)
    return i64(at + 1)


@inner
def write_decimal_property(dst: Any, at: int, name: Any, value: int) -> int:
    """Write a property of digits; return the position after it."""
    copy_bytes(dst, at, name, 0, name.size)
    at += name.size
    dst[uintp(at)] = u8(NAME_END)
    at = write_decimal(dst, at + 1, value)
    dst[uintp(at)] = u8(PROPERTY_END)
    return i64(at + 1)
