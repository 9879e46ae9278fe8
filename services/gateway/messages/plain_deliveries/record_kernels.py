"""A plain record read for its delivery.

Plain is a record of a normal message, or of one with a message group: with a unique key, properties of
printable ASCII, IPv4 hosts, and a body that is not compressed.
"""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages import names
from services.gateway.messages.plain_deliveries.fields import (
    BODY,
    BORN_HOST_AT,
    BORN_HOST_TEXT,
    BORN_MS,
    FIELD_COUNT,
    KEYS,
    MESSAGE_GROUP,
    MESSAGE_ID,
    PROPERTIES,
    QUEUE_ID,
    QUEUE_OFFSET,
    RECORD_SIZE,
    RECORD_SIZE_MAX,
    SIZES,
    STORE_HOST_AT,
    STORE_MS,
    TAG,
    TRACE_CONTEXT,
)
from services.gateway.messages.times import TIME_MS_MAX
from storage.format import properties
from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    BORN_TIMESTAMP_POSITION,
    MAGIC_POSITION,
    MAGIC_V1,
    QUEUE_ID_POSITION,
    QUEUE_OFFSET_POSITION,
    RECORD_SIZE_MIN,
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_POSITION,
    SYS_FLAG_STORE_HOST_V6,
)
from storage.kernels.primitives.big_endian import read_i16, read_i32, read_i64, read_u8, read_u32
from storage.kernels.primitives.jit import (
    BYTES,
    WRITABLE_INT64S,
    boolean,
    i64,
    inner,
    int64,
    kernel,
)
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import (
    NAME_KEYS,
    NAME_TAGS,
    NAME_UNIQ_KEY,
    matches,
    reserved_names,
)
from storage.kernels.record_parts import BODY_AT, BODY_LENGTH_AT

_NOT_PLAIN_FLAGS: Final = SYS_FLAG_COMPRESSED | SYS_FLAG_BORN_HOST_V6 | SYS_FLAG_STORE_HOST_V6
_SPACE: Final = 0x20
_DELETE: Final = 0x7F
_STORE_HOST_POSITION: Final = BORN_HOST_POSITION + IPV4_HOST_SIZE + 8
_NAME_BORN_HOST: Final = text_bytes(names.BORN_HOST)
_NAME_MESSAGE_GROUP: Final = text_bytes(properties.SHARDING_KEY)
_NAME_TRACE_CONTEXT: Final = text_bytes(names.TRACE_CONTEXT)

is_special: Final = reserved_names(
    {
        properties.DELAY, properties.TIMER_DELIVER_MS, properties.TIMER_DELAY_SEC, properties.HALF_MESSAGE,
        properties.DEAD_LETTER_ORIGIN_TOPIC, properties.DEAD_LETTER_ORIGIN_MESSAGE_ID,
    }
)  # fmt: skip
"""Whether a name makes its message another kind, or tells where it comes from."""


@inner
def is_name(data: Any, at: int, size: int, name: Any) -> bool:
    """Whether ``size`` bytes are a name."""
    return size == name.size and matches(data, at, name)


@inner
def text_of(data: Any, name: int, size: int) -> int:
    """Which text of a message a property is, -1 for none."""
    if is_name(data, name, size, NAME_UNIQ_KEY):
        return i64(MESSAGE_ID)
    if is_name(data, name, size, NAME_KEYS):
        return i64(KEYS)
    if is_name(data, name, size, NAME_TAGS):
        return i64(TAG)
    if is_name(data, name, size, _NAME_BORN_HOST):
        return i64(BORN_HOST_TEXT)
    if is_name(data, name, size, _NAME_MESSAGE_GROUP):
        return i64(MESSAGE_GROUP)
    if is_name(data, name, size, _NAME_TRACE_CONTEXT):
        return i64(TRACE_CONTEXT)
    return i64(-1)


@inner
def end_of_part(data: Any, at: int, end: int, separator: int) -> int:
    """Where a name or a value ends, with its separator; -1 unless it is printable and has a byte."""
    begin = at
    while at < end:
        byte = read_u8(data, at)
        if byte == separator:
            return i64(at if at > begin else -1)
        if byte < _SPACE or byte >= _DELETE:
            return i64(-1)
        at += 1
    return i64(-1)


@inner
def read_properties(data: Any, at: int, end: int, fields: Any) -> bool:
    """Find the texts of a message among its properties; False if a property is not plain."""
    while at < end:
        name_end = end_of_part(data, at, end, i64(properties.NAME_END))
        if name_end < 0 or is_special(data, at, name_end - at):
            return False
        value_end = end_of_part(data, i64(name_end + 1), end, i64(properties.PROPERTY_END))
        if value_end < 0:
            return False
        text = text_of(data, at, name_end - at)
        if text >= 0:
            fields[text] = name_end + 1
            fields[SIZES + text] = value_end - name_end - 1
        at = i64(value_end + 1)
    return bool(fields[SIZES + MESSAGE_ID] > 0)


@kernel(boolean(BYTES, int64, WRITABLE_INT64S), nogil=False)
def read_delivery(data: Any, position: int, fields: Any) -> bool:
    """Read the record at ``position`` into ``fields``; whether it is plain."""
    if fields.size != FIELD_COUNT or not 0 <= position <= data.size - RECORD_SIZE_MIN:
        return False
    record_size = read_i32(data, position)
    if (
        not RECORD_SIZE_MIN <= record_size <= min(i64(RECORD_SIZE_MAX), data.size - position)
        or read_u32(data, i64(position + MAGIC_POSITION)) != MAGIC_V1
        or read_i32(data, i64(position + SYS_FLAG_POSITION)) & _NOT_PLAIN_FLAGS
    ):
        return False
    end = i64(position + record_size)
    for i in range(FIELD_COUNT):
        fields[i] = 0
    body_size = read_i32(data, i64(position + BODY_LENGTH_AT))
    topic_at = i64(position + BODY_AT + body_size)
    if not 0 <= body_size <= record_size - RECORD_SIZE_MIN:
        return False
    length_at = i64(topic_at + 1 + read_u8(data, topic_at))
    if length_at + 2 > end or read_i16(data, length_at) != end - length_at - 2:
        return False
    fields[RECORD_SIZE] = record_size
    fields[BODY] = position + BODY_AT
    fields[SIZES + BODY] = body_size
    fields[QUEUE_ID] = read_i32(data, i64(position + QUEUE_ID_POSITION))
    fields[QUEUE_OFFSET] = read_i64(data, i64(position + QUEUE_OFFSET_POSITION))
    fields[BORN_MS] = read_i64(data, i64(position + BORN_TIMESTAMP_POSITION))
    fields[STORE_MS] = read_i64(data, i64(position + BORN_HOST_POSITION + IPV4_HOST_SIZE))
    fields[BORN_HOST_AT] = position + BORN_HOST_POSITION
    fields[STORE_HOST_AT] = position + _STORE_HOST_POSITION
    fields[PROPERTIES] = length_at + 2
    fields[SIZES + PROPERTIES] = end - length_at - 2
    return (
        fields[QUEUE_ID] >= 0
        and fields[QUEUE_OFFSET] >= 0
        and 0 <= fields[BORN_MS] <= TIME_MS_MAX
        and 0 <= fields[STORE_MS] <= TIME_MS_MAX
        and read_i32(data, i64(fields[BORN_HOST_AT] + 4)) >= 0
        and read_i32(data, i64(fields[STORE_HOST_AT] + 4)) >= 0
        and read_properties(data, i64(length_at + 2), end, fields)
    )
