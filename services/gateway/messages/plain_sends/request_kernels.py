"""A plain SendMessageRequest read into slices, without protobuf objects.

Plain is a request of one normal message with texts of visible ASCII and known fields, each once and
in its shortest form: one that cannot be refused for what it says. The buffer has::

    position    content
    KEYS_AT     the keys, joined
    USER_AT     the user properties, as a record has them
    REQUEST_AT  the request

``fields``, of FIELD_COUNT, has the position of each text in the buffer and at SIZES its length, and
the numbers.
"""

from __future__ import annotations

from typing import Any, Final

from services.gateway.messages.times import TIME_MS_MAX
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from services.varint_kernels import (
    DELIMITED,
    FIELDS_MAX,
    NOT_KNOWN,
    VARINT,
    by_field_number,
    read_varint,
)
from storage.format import properties
from storage.format.record_layout import TOPIC_SIZE_MAX_V1
from storage.kernels.message_slices import is_plain_text, join_key
from storage.kernels.primitives.big_endian import read_u8
from storage.kernels.primitives.jit import (
    FEW_BYTES,
    WRITABLE_BYTES,
    WRITABLE_INT64S,
    boolean,
    i64,
    inner,
    int64,
    kernel,
    uintp,
)
from storage.kernels.properties import reserved_names
from storage.kernels.record_parts import write_pair

TOPIC: Final = 0
BODY: Final = 1
KEYS: Final = 2  # joined by single spaces
USER: Final = 3
TAG: Final = 4
MESSAGE_ID: Final = 5
BORN_HOST: Final = 6
TRACE_CONTEXT: Final = 7
SIZES: Final = 8
ENCODING: Final = 16
TYPE: Final = 17
BORN_MS: Final = 18  # -1 where it is not given
IGNORED: Final = 19
FIELD_COUNT: Final = 20

TEXTS_MAX: Final = 4 << 10  # of keys, of user properties and of each other text: below every limit
USER_COUNT_MAX: Final = 16
REQUEST_SIZE_MAX: Final = FEW_BYTES
KEYS_AT: Final = 0
USER_AT: Final = KEYS_AT + TEXTS_MAX
REQUEST_AT: Final = USER_AT + TEXTS_MAX
BUFFER_SIZE: Final = REQUEST_AT + REQUEST_SIZE_MAX
RECORD_SIZE_MAX: Final = BUFFER_SIZE + TEXTS_MAX

DIGEST_TYPE: Final = v2.Digest.TYPE_FIELD_NUMBER
DIGEST_CHECKSUM: Final = v2.Digest.CHECKSUM_FIELD_NUMBER
_SPACE: Final = 0x20
_DELETE: Final = 0x7F
is_reserved: Final = reserved_names(
    properties.RESERVED | properties.STORE_ONLY | {properties.SHARDING_KEY}
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
def is_printable(data: Any, begin: int, end: int) -> bool:
    """Whether bytes are visible ASCII and spaces."""
    for i in range(begin, end):
        byte = read_u8(data, i)
        if byte < _SPACE or byte >= _DELETE:
            return False
    return True


@inner
def read_head(data: Any, at: int, end: int) -> tuple[int, int, int, int]:
    """``(field number, kind, value, position after it)`` of a field; a position of -1 if it is none.

    The value of a delimited field is its size, and its bytes are there.
    """
    tag, at = read_varint(data, at, end)
    number = tag >> 3
    kind = tag & 7
    if at < 0 or not 0 < number < FIELDS_MAX or kind not in (VARINT, DELIMITED):
        return i64(0), i64(0), i64(0), i64(-1)
    value, at = read_varint(data, at, end)
    if at < 0 or (kind == DELIMITED and value > end - at):
        return i64(0), i64(0), i64(0), i64(-1)
    return i64(number), i64(kind), value, at


@inner
def is_digest(data: Any, at: int, end: int) -> bool:
    """Whether bytes are a digest, which is not looked at."""
    last = i64(0)
    while at < end:
        number, kind, size, at = read_head(data, at, end)
        if at < 0 or number <= last or number > DIGEST_CHECKSUM:
            return False
        if kind != (VARINT if number == DIGEST_TYPE else DELIMITED):
            return False
        if kind == DELIMITED:
            if not is_printable(data, at, at + size):
                return False
            at += size
        last = number
    return True


@inner
def read_time(data: Any, at: int, end: int) -> int:
    """Return Unix milliseconds of a timestamp, -1 if it is not one of the years 1970 to 9999."""
    seconds = i64(0)
    nanos = i64(0)
    last = i64(0)
    while at < end:
        number, kind, value, at = read_head(data, at, end)
        if at < 0 or number <= last or number > 2 or kind != VARINT:
            return i64(-1)
        if number == 1:
            seconds = value
        else:
            nanos = value
        last = number
    if seconds > TIME_MS_MAX // 1_000 or nanos > 999_999_999:
        return i64(-1)
    return i64(seconds * 1_000 + nanos // 1_000_000)


@inner
def has_user_property(data: Any, user_end: int, name: int, size: int) -> bool:
    """Whether a user property of that name was added before."""
    at = i64(USER_AT)
    while at < user_end:
        i = i64(0)
        while i < size and read_u8(data, at + i) == read_u8(data, name + i):
            i += 1
        if i == size and read_u8(data, at + i) == properties.NAME_END:
            return True
        while read_u8(data, at) != properties.PROPERTY_END:
            at += 1
        at += 1
    return False


@inner
def add_user_property(data: Any, user_end: int, at: int, end: int) -> int:
    """Add an entry of the map to the properties that end at ``user_end``; return the new end, or -1."""
    no = i64(-1)
    number, kind, name_size, name = read_head(data, at, end)
    if name < 0 or number != 1 or kind != DELIMITED:
        return no
    number, kind, value_size, value = read_head(data, name + name_size, end)
    if value < 0 or number != 2 or kind != DELIMITED or value + value_size != end:
        return no
    if (
        name_size == 0
        or value_size == 0
        or user_end + name_size + value_size + 2 > USER_AT + TEXTS_MAX
        or not is_plain_text(data, name, name + name_size, i64(0))
        or not is_printable(data, value, end)
        or is_reserved(data, name, name_size)
        or has_user_property(data, user_end, name, name_size)
    ):
        return no
    return write_pair(data, user_end, data, name, name + name_size, data, value, end)


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
