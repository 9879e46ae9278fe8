"""A plain SendMessageRequest read into slices, without protobuf objects.

Plain is a request of one normal message with texts of visible ASCII and known fields, each once and
in its shortest form: one that cannot be refused for what it says.
"""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages.plain_sends.fields import (
    BODY,
    BORN_HOST,
    BORN_MS,
    BUFFER_SIZE,
    ENCODING,
    FIELD_COUNT,
    IGNORED,
    KEYS,
    KEYS_AT,
    MESSAGE_ID,
    REQUEST_AT,
    REQUEST_SIZE_MAX,
    SIZES,
    TAG,
    TEXTS_MAX,
    TOPIC,
    TRACE_CONTEXT,
    TYPE,
    USER,
    USER_AT,
    USER_COUNT_MAX,
)
from services.gateway.messages.plain_sends.parts import (
    add_user_property,
    is_digest,
    is_printable,
    read_head,
    read_time,
)
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.varint_kernels import DELIMITED, NOT_KNOWN, VARINT, by_field_number
from storage.format.record_layout import (
    TOPIC_SIZE_MAX_V1,
)
from storage.kernels.message_slices import is_plain_text, join_key
from storage.kernels.primitives.jit import (
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    boolean,
    i64,
    inner,
    int64,
    kernel,
    uintp,
)

_BAR: Final = 0x7C

_REQUEST: Final = service_pb2.SendMessageRequest
_MESSAGE: Final = v2.Message
_SYSTEM: Final = v2.SystemProperties
MESSAGES: Final = _REQUEST.MESSAGES_FIELD_NUMBER
MESSAGE_TOPIC: Final = _MESSAGE.TOPIC_FIELD_NUMBER
MESSAGE_USER: Final = _MESSAGE.USER_PROPERTIES_FIELD_NUMBER
MESSAGE_SYSTEM: Final = _MESSAGE.SYSTEM_PROPERTIES_FIELD_NUMBER
MESSAGE_BODY: Final = _MESSAGE.BODY_FIELD_NUMBER
RESOURCE_NAME: Final = v2.Resource.NAME_FIELD_NUMBER
SYSTEM_KEYS: Final = _SYSTEM.KEYS_FIELD_NUMBER
SYSTEM_DIGEST: Final = _SYSTEM.BODY_DIGEST_FIELD_NUMBER
SYSTEM_BORN: Final = _SYSTEM.BORN_TIMESTAMP_FIELD_NUMBER
NORMAL: Final = int(v2.NORMAL)
GZIP: Final = int(v2.GZIP)


SYSTEM_TEXTS: Final = by_field_number(
    {
        _SYSTEM.TAG_FIELD_NUMBER: TAG,
        _SYSTEM.MESSAGE_ID_FIELD_NUMBER: MESSAGE_ID,
        _SYSTEM.BORN_HOST_FIELD_NUMBER: BORN_HOST,
        _SYSTEM.TRACE_CONTEXT_FIELD_NUMBER: TRACE_CONTEXT,
    }
)
SYSTEM_NUMBERS: Final = by_field_number(
    {
        _SYSTEM.BODY_ENCODING_FIELD_NUMBER: ENCODING,
        _SYSTEM.MESSAGE_TYPE_FIELD_NUMBER: TYPE,
        _SYSTEM.QUEUE_ID_FIELD_NUMBER: IGNORED,  # the gateway chooses the queue
    }
)


@inner
def read_topic(data: Any, at: int, end: int, fields: Any) -> bool:
    """Read a resource that has a name only."""
    number, kind, size, at = read_head(data, at, end)
    if at < 0 or number != RESOURCE_NAME or kind != DELIMITED or size != end - at:
        return False
    fields[TOPIC] = at
    fields[SIZES + TOPIC] = size
    return 0 < size <= TOPIC_SIZE_MAX_V1 and is_plain_text(data, at, end, i64(0))


@inner
def read_system(data: Any, at: int, end: int, fields: Any) -> bool:
    """Read what a message says beside its body; False unless each field is known and there once."""
    seen = i64(0)
    keys_end = i64(KEYS_AT)
    while at < end:
        number, kind, value, at = read_head(data, at, end)
        if at < 0:
            return False
        if number == SYSTEM_KEYS and kind == DELIMITED:
            keys_end = join_key(data, i64(KEYS_AT), keys_end, i64(TEXTS_MAX), at, value)
            if keys_end < 0:
                return False
            at += value
            continue
        if seen & i64(1) << number:
            return False
        seen |= i64(1) << number
        text = SYSTEM_TEXTS[uintp(number)]
        place = SYSTEM_NUMBERS[uintp(number)]
        if kind == VARINT:
            if place == NOT_KNOWN:
                return False
            fields[place] = value
            continue
        if text != NOT_KNOWN:
            if value > TEXTS_MAX:
                return False
            fields[text] = at
            fields[SIZES + text] = value
        elif number == SYSTEM_BORN:
            fields[BORN_MS] = read_time(data, at, at + value)
            if fields[BORN_MS] < 0:
                return False
        elif number != SYSTEM_DIGEST or not is_digest(data, at, at + value):
            return False
        at += value
    fields[SIZES + KEYS] = keys_end - KEYS_AT
    return True


@inner
def is_normal(data: Any, fields: Any) -> bool:
    """Whether all that was read can be stored as it is."""
    tag = i64(fields[TAG])
    identity = i64(fields[MESSAGE_ID])
    host = i64(fields[BORN_HOST])
    trace = i64(fields[TRACE_CONTEXT])
    return bool(
        fields[TYPE] == NORMAL
        and fields[ENCODING] <= GZIP
        and fields[SIZES + TOPIC] > 0
        and fields[SIZES + BODY] > 0
        and fields[SIZES + MESSAGE_ID] > 0
        and (tag == 0 or fields[SIZES + TAG] > 0)
        and is_plain_text(data, tag, tag + fields[SIZES + TAG], i64(_BAR))
        and is_plain_text(data, identity, identity + fields[SIZES + MESSAGE_ID], i64(0))
        and is_printable(data, host, host + fields[SIZES + BORN_HOST])
        and is_printable(data, trace, trace + fields[SIZES + TRACE_CONTEXT])
    )


@inner
def read_sent_message(data: Any, at: int, end: int, fields: Any) -> bool:
    """Read a message; False unless each field is known and, but for user properties, there once."""
    for i in range(FIELD_COUNT):
        fields[i] = 0
    fields[BORN_MS] = -1
    fields[KEYS] = KEYS_AT
    fields[USER] = USER_AT
    user_end = i64(USER_AT)
    user_count = i64(0)
    seen = i64(0)
    while at < end:
        number, kind, size, at = read_head(data, at, end)
        if at < 0 or kind != DELIMITED:
            return False
        if number == MESSAGE_USER:
            user_count += 1
            user_end = add_user_property(data, user_end, at, at + size)
            if user_end < 0 or user_count > USER_COUNT_MAX:
                return False
            at += size
            continue
        if seen & i64(1) << number:
            return False
        seen |= i64(1) << number
        if number == MESSAGE_TOPIC:
            if not read_topic(data, at, at + size, fields):
                return False
        elif number == MESSAGE_SYSTEM:
            if not read_system(data, at, at + size, fields):
                return False
        elif number == MESSAGE_BODY:
            fields[BODY] = at
            fields[SIZES + BODY] = size
        else:
            return False
        at += size
    fields[SIZES + USER] = user_end - USER_AT
    return is_normal(data, fields)


@kernel(boolean(WRITABLE_BYTES, int64, WRITABLE_INT64S), nogil=False)
def read_send(data: Any, request_size: int, fields: Any) -> bool:
    """Read the request at REQUEST_AT of ``data`` into ``fields``; whether it is plain."""
    if (
        data.size != BUFFER_SIZE
        or fields.size != FIELD_COUNT
        or not 0 < request_size <= REQUEST_SIZE_MAX
    ):
        return False
    end = i64(REQUEST_AT + request_size)
    number, kind, size, at = read_head(data, i64(REQUEST_AT), end)
    if at < 0 or number != MESSAGES or kind != DELIMITED or size != end - at:
        return False
    return read_sent_message(data, at, end, fields)
