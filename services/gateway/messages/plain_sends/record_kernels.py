"""A plain request that was read, written as the record that ``sent_messages`` makes."""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages import names
from services.gateway.messages.plain_sends.request_kernels import (
    BODY,
    BORN_HOST,
    BORN_MS,
    ENCODING,
    FIELD_COUNT,
    KEYS,
    MESSAGE_ID,
    SIZES,
    TAG,
    TOPIC,
    TRACE_CONTEXT,
    USER,
)
from services.gateway.v2 import definition_pb2 as v2
from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.property_crc import PROPERTY_CRC_SIZE
from storage.format.record_layout import (
    BORN_HOST_POSITION,
    QUEUE_ID_POSITION,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_POSITION,
)
from storage.kernels.primitives.big_endian import write_i16, write_i32
from storage.kernels.primitives.crc import copy_bytes
from storage.kernels.primitives.jit import (
    BYTES,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    i64,
    inner,
    int64,
    kernel,
)
from storage.kernels.primitives.text import text_bytes
from storage.kernels.properties import NAME_KEYS, NAME_TAGS, NAME_UNIQ_KEY, write_crc_trailer
from storage.kernels.record_parts import (
    write_body_and_topic,
    write_decimal_property,
    write_head,
    write_pair,
)

_FIXED_SIZE: Final = 512  # above what a record has beside its texts and its tail
_GZIP: Final = int(v2.GZIP)
_NAME_BORN_TIMESTAMP: Final = text_bytes(names.BORN_TIMESTAMP)
_NAME_BORN_HOST: Final = text_bytes(names.BORN_HOST)
_NAME_TRACE_CONTEXT: Final = text_bytes(names.TRACE_CONTEXT)


@inner
def write_text_property(dst: Any, at: int, name: Any, data: Any, fields: Any, text: int) -> int:
    """Write a text's property, left out where it is not given; return the position after it."""
    begin = i64(fields[text])
    return write_pair(
        dst, at, name, i64(0), i64(name.size), data, begin, i64(begin + fields[SIZES + text])
    )


@kernel(int64(WRITABLE_BYTES, BYTES, WRITABLE_INT64S, int64, int64, BYTES, BYTES), nogil=False)
def write_sent(
    dst: Any, data: Any, fields: Any, queue_id: int, now_ms: int, born_host: Any, tail: Any
) -> int:
    """Write the record of the message that was read to ``dst``; return its size, -1 if it does not fit.

    ``tail`` are properties that end the block, before the CRC's digits, which the store writes.
    """
    size_max = i64(_FIXED_SIZE + tail.size)
    for text in range(SIZES):
        size_max += fields[SIZES + text]
    if size_max > dst.size or fields.size != FIELD_COUNT or born_host.size != IPV4_HOST_SIZE:
        return i64(-1)
    born_ms = i64(fields[BORN_MS] if fields[BORN_MS] >= 0 else now_ms)
    write_head(dst, i64(0), i64(0), i64(fields[SIZES + TOPIC]), born_ms)
    write_i32(dst, i64(QUEUE_ID_POSITION), queue_id)
    if fields[ENCODING] == _GZIP:
        write_i32(dst, i64(SYS_FLAG_POSITION), i64(SYS_FLAG_COMPRESSED))
    copy_bytes(dst, i64(BORN_HOST_POSITION), born_host, i64(0), i64(IPV4_HOST_SIZE))
    length_at = write_body_and_topic(
        dst, i64(0), data, i64(fields[BODY]), i64(fields[SIZES + BODY]), data,
        i64(fields[TOPIC]), i64(fields[SIZES + TOPIC]),
    )  # fmt: skip
    at = write_text_property(dst, i64(length_at + 2), NAME_UNIQ_KEY, data, fields, i64(MESSAGE_ID))
    at = write_text_property(dst, at, NAME_KEYS, data, fields, i64(KEYS))
    at = write_text_property(dst, at, NAME_TAGS, data, fields, i64(TAG))
    copy_bytes(dst, at, data, i64(fields[USER]), i64(fields[SIZES + USER]))
    at += fields[SIZES + USER]
    at = write_decimal_property(dst, i64(at), _NAME_BORN_TIMESTAMP, born_ms)
    at = write_text_property(dst, at, _NAME_BORN_HOST, data, fields, i64(BORN_HOST))
    at = write_text_property(dst, at, _NAME_TRACE_CONTEXT, data, fields, i64(TRACE_CONTEXT))
    copy_bytes(dst, at, tail, i64(0), i64(tail.size))
    at += tail.size
    write_crc_trailer(dst, at, i64(0))
    at += PROPERTY_CRC_SIZE
    write_i16(dst, length_at, i64(at - length_at - 2))
    write_i32(dst, i64(0), i64(at))
    return i64(at)
