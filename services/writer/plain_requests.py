"""A plain ProduceRequest read into slices, and its ProduceResponse written, without protobuf objects.

Plain is a request of one message, and perhaps of whose it is, with known fields only, each once and
in its shortest form. What is not plain is left to protobuf. ``storage.kernels.message_slices`` says
what slices are. After the store's head the buffer has, in one array so that little memory is
touched::

    position       content
    ANSWER_AT      the answer
    KEYS_AT        the keys, joined
    REQUEST_AT     the request
"""

from __future__ import annotations

from typing import Any, Final

from services.varint_kernels import (
    DELIMITED,
    FIXED64,
    NOT_KNOWN,
    VARINT,
    by_field_number,
    read_varint,
    write_delimited,
    write_number,
)
from storage.format.properties import KEY_SEPARATOR
from storage.kernels.encode import ANY_QUEUE
from storage.kernels.message_slices import (
    AGE,
    BODY,
    BORN_TIMESTAMP,
    COMMIT_OFFSET,
    FIELD_COUNT,
    FLAG,
    HEAD_SIZE,
    KEYS,
    PRODUCER_ID,
    PROPERTIES_MAX,
    QUEUE_ID,
    QUEUE_OFFSET,
    SEQUENCE,
    SIZES,
    STORE_HOST_AT,
    STORE_TIMESTAMP,
    TAG,
    TOPIC,
    UNIQUE_KEY,
    join_key,
    slices_fit,
)
from storage.kernels.primitives.big_endian import read_i64, read_u8
from storage.kernels.primitives.crc import copy_bytes
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
    uintp,
)
from storage.kernels.primitives.text import write_hex
from storage.log.message_slices import MessageSlices

# Field numbers of the contract: ProduceRequest, ProducerSequence, Message, ProduceResponse, ProduceResult.
MESSAGES: Final = 1
PRODUCER: Final = 2
PRODUCER_PRODUCER_ID: Final = 1
PRODUCER_SEQUENCE: Final = 2
PRODUCER_AGE: Final = 3
MESSAGE_TOPIC: Final = 1
MESSAGE_BODY: Final = 2
MESSAGE_KEYS: Final = 3
MESSAGE_TAG: Final = 4
MESSAGE_QUEUE_ID: Final = 6
MESSAGE_UNIQUE_KEY: Final = 7
MESSAGE_FLAG: Final = 8
MESSAGE_BORN_TIMESTAMP: Final = 9
RESULTS: Final = 1
RESULT_TOPIC: Final = 1
RESULT_QUEUE_ID: Final = 2
RESULT_QUEUE_OFFSET: Final = 3
RESULT_COMMIT_OFFSET: Final = 4
RESULT_MESSAGE_ID: Final = 5
RESULT_UNIQUE_KEY: Final = 6
RESULT_STORE_TIMESTAMP: Final = 7

REQUEST_SIZE_MAX: Final = FEW_BYTES
ANSWER_AT: Final = HEAD_SIZE
_RESULT_AT: Final = ANSWER_AT + 8  # after the longest head of a result
KEYS_AT: Final = _RESULT_AT + PROPERTIES_MAX + 512
REQUEST_AT: Final = KEYS_AT + PROPERTIES_MAX
BUFFER_SIZE: Final = REQUEST_AT + REQUEST_SIZE_MAX

_MESSAGE_ID_SIZE: Final = 32
_SPACE: Final = ord(KEY_SEPARATOR)
_TEXT_OF: Final = {
    MESSAGE_TOPIC: TOPIC, MESSAGE_BODY: BODY, MESSAGE_KEYS: KEYS, MESSAGE_TAG: TAG,
    MESSAGE_UNIQUE_KEY: UNIQUE_KEY,
}  # fmt: skip
_NUMBER_OF: Final = {
    MESSAGE_QUEUE_ID: QUEUE_ID, MESSAGE_FLAG: FLAG, MESSAGE_BORN_TIMESTAMP: BORN_TIMESTAMP,
}  # fmt: skip


TEXT_BY_NUMBER: Final = by_field_number(_TEXT_OF)
NUMBER_BY_NUMBER: Final = by_field_number(_NUMBER_OF)


@inner
def read_message(data: Any, at: int, end: int, fields: Any) -> bool:
    """Read the fields of a message; False unless each is known and there once."""
    for i in range(FIELD_COUNT):
        fields[i] = 0
    fields[QUEUE_ID] = ANY_QUEUE
    seen = i64(0)
    keys_end = i64(KEYS_AT)
    while at < end:
        tag = read_u8(data, at)
        value, at = read_varint(data, at + 1, end)
        if at < 0:
            return False
        number = tag >> 3
        text = TEXT_BY_NUMBER[uintp(number)]
        place = NUMBER_BY_NUMBER[uintp(number)]
        if tag & 7 == DELIMITED and text == KEYS:
            if value > end - at:
                return False
            keys_end = join_key(data, i64(KEYS_AT), keys_end, i64(PROPERTIES_MAX), at, value)
            if keys_end < 0:
                return False
            at += value
            continue
        if seen & i64(1) << number:
            return False
        seen |= i64(1) << number
        if tag & 7 == DELIMITED and text != NOT_KNOWN:
            if value > end - at:
                return False
            fields[text] = at
            fields[SIZES + text] = value
            at += value
        elif tag & 7 == VARINT and place != NOT_KNOWN:
            fields[place] = value
        else:
            return False
    fields[KEYS] = KEYS_AT
    fields[SIZES + KEYS] = keys_end - KEYS_AT
    return True


@inner
def read_producer(data: Any, at: int, end: int, fields: Any) -> bool:
    """Read whose request it is; False unless each field is known, in order, and there once."""
    if read_u8(data, at) != PRODUCER << 3 | DELIMITED:
        return False
    size, at = read_varint(data, i64(at + 1), end)
    if (
        at < 0
        or size != end - at
        or size < 11
        or read_u8(data, at) != PRODUCER_PRODUCER_ID << 3 | FIXED64
        or read_u8(data, at + 9) != PRODUCER_SEQUENCE << 3 | VARINT
    ):
        return False
    producer_id = i64(0)
    for i in range(8):
        producer_id |= read_u8(data, at + 1 + i) << 8 * i
    sequence, at = read_varint(data, i64(at + 10), end)
    age = i64(0)
    if 0 <= at < end:
        if read_u8(data, at) != PRODUCER_AGE << 3 | VARINT:
            return False
        age, at = read_varint(data, i64(at + 1), end)
    fields[PRODUCER_ID] = producer_id
    fields[SEQUENCE] = sequence
    fields[AGE] = age
    return at == end and producer_id > 0 and sequence > 0


@kernel(boolean(WRITABLE_BYTES, int64, WRITABLE_INT64S), nogil=False)
def read_request(data: Any, request_size: int, fields: Any) -> bool:
    """Read the request at REQUEST_AT of ``data`` into ``fields``; whether it is plain."""
    if (
        data.size != BUFFER_SIZE
        or fields.size != FIELD_COUNT
        or not 0 < request_size <= REQUEST_SIZE_MAX
        or read_u8(data, REQUEST_AT) != MESSAGES << 3 | DELIMITED
    ):
        return False
    end = REQUEST_AT + request_size
    size, at = read_varint(data, i64(REQUEST_AT + 1), end)
    if at < 0 or size > end - at or not read_message(data, at, i64(at + size), fields):
        return False
    at += size
    return at == end or read_producer(data, at, end, fields)


@kernel(results(int64, 2)(WRITABLE_BYTES, WRITABLE_INT64S), nogil=False)
def write_answer(data: Any, fields: Any) -> tuple[int, int]:
    """Write the answer to a message that was stored; return where it begins and ends in ``data``.

    (-1, -1), with nothing changed, if it would not fit, which a plain message's does.
    """
    if data.size != BUFFER_SIZE or not slices_fit(data, fields):
        return i64(-1), i64(-1)
    topic_size = i64(fields[SIZES + TOPIC])
    unique_size = i64(fields[SIZES + UNIQUE_KEY])
    if topic_size + unique_size > PROPERTIES_MAX + 256:
        return i64(-1), i64(-1)
    commit_offset = i64(fields[COMMIT_OFFSET])
    at = write_delimited(data, i64(_RESULT_AT), i64(RESULT_TOPIC), topic_size)
    copy_bytes(data, at, data, i64(fields[TOPIC]), topic_size)
    at = write_number(data, at + topic_size, i64(RESULT_QUEUE_ID), i64(fields[QUEUE_ID]))
    at = write_number(data, at, i64(RESULT_QUEUE_OFFSET), i64(fields[QUEUE_OFFSET]))
    at = write_number(data, at, i64(RESULT_COMMIT_OFFSET), commit_offset)
    at = write_delimited(data, at, i64(RESULT_MESSAGE_ID), i64(_MESSAGE_ID_SIZE))
    write_hex(data, at, read_i64(data, i64(STORE_HOST_AT)), i64(16))
    write_hex(data, at + 16, commit_offset, i64(16))
    at = write_delimited(data, at + 32, i64(RESULT_UNIQUE_KEY), unique_size)
    copy_bytes(data, at, data, i64(fields[UNIQUE_KEY]), unique_size)
    at = write_number(
        data, at + unique_size, i64(RESULT_STORE_TIMESTAMP), i64(fields[STORE_TIMESTAMP])
    )
    size = i64(at - _RESULT_AT)
    head = i64(2 if size < 1 << 7 else (3 if size < 1 << 14 else 4))
    write_delimited(data, i64(_RESULT_AT - head), i64(RESULTS), size)
    return i64(_RESULT_AT - head), i64(at)


class PlainRequests:
    """Reads one request after the other into the same buffer, of BUFFER_SIZE."""

    def __init__(self, message: MessageSlices) -> None:
        self.message = message

    def read(self, request: bytes) -> bool:
        """Read a serialized ProduceRequest into ``message``; False if it is not plain."""
        size = len(request)
        if size > REQUEST_SIZE_MAX:
            return False
        message = self.message
        message.view[REQUEST_AT : REQUEST_AT + size] = request
        return read_request(message.data, size, message.fields)

    def answer(self) -> bytes:
        """Return the serialized ProduceResponse for ``message``, which was stored."""
        begin, end = write_answer(self.message.data, self.message.fields)
        assert begin >= 0
        return self.message.view[begin:end].tobytes()
