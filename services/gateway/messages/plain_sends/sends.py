"""Plain sends: their records, and the answers to them. What is not plain is left to protobuf."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from penstock.framing import varint
from services.gateway.messages.plain_sends.record_kernels import write_sent
from services.gateway.messages.plain_sends.request_kernels import (
    BODY,
    BUFFER_SIZE,
    FIELD_COUNT,
    MESSAGE_ID,
    RECORD_SIZE_MAX,
    REQUEST_AT,
    REQUEST_SIZE_MAX,
    SIZES,
    TOPIC,
    read_send,
)
from services.gateway.messages.sent_messages import Stamp, stamp_of_topic
from services.gateway.messages.statuses import OK
from services.gateway.v2 import service_pb2
from storage.format.hosts import IPV4_HOST_SIZE, encode_host

_ENTRY: Final = service_pb2.SendResultEntry
_DELIMITED: Final = 2
_OFFSET_BITS: Final = (1 << 64) - 1  # as protobuf writes a negative number
_STATUS: Final = service_pb2.SendMessageResponse(status=OK).SerializeToString()
_ENTRY_STATUS: Final = _ENTRY(status=OK).SerializeToString()
_ENTRIES: Final = bytes([service_pb2.SendMessageResponse.ENTRIES_FIELD_NUMBER << 3 | _DELIMITED])
_MESSAGE_ID: Final = bytes([_ENTRY.MESSAGE_ID_FIELD_NUMBER << 3 | _DELIMITED])
_TRANSACTION_ID: Final = bytes([_ENTRY.TRANSACTION_ID_FIELD_NUMBER << 3 | _DELIMITED])
_OFFSET: Final = bytes([_ENTRY.OFFSET_FIELD_NUMBER << 3])


class PlainSends:
    """Reads one request after the other into the same buffer; used by one thread."""

    def __init__(self, stamp: Stamp) -> None:
        self._stamp = stamp
        self._data = np.zeros(BUFFER_SIZE, np.uint8)
        self._view = memoryview(self._data.data)
        self._fields = np.zeros(FIELD_COUNT, np.int64)
        self._host: Any = None
        self._record = np.zeros(RECORD_SIZE_MAX, np.uint8)
        self._record_view = memoryview(self._record.data)

    def read(self, request: bytes, *, born_host: str) -> str | None:
        """Read a serialized SendMessageRequest; return its topic, None if it is not plain.

        That of a caller with an IPv6 address is not.
        """
        size = len(request)
        self._host = _host_bytes(born_host)
        if size > REQUEST_SIZE_MAX or self._host.size != IPV4_HOST_SIZE:
            return None
        self._view[REQUEST_AT : REQUEST_AT + size] = request
        if not read_send(self._data, size, self._fields):
            return None
        if self._fields[SIZES + BODY] > self._stamp.body_bytes_max:
            return None
        return self._text(TOPIC).decode()

    def message_id(self) -> bytes:
        """Return the id of the message that was read."""
        return self._text(MESSAGE_ID)

    def record(self, topic: str, queue_id: int, *, now_ms: int) -> bytes | None:
        """Return the record of the message that was read; None if it does not fit, for its topic's name."""
        tail = _tail_of(topic, self._stamp)
        size = write_sent(
            self._record, self._data, self._fields, queue_id, now_ms, self._host, tail
        )
        return None if size < 0 else self._record_view[:size].tobytes()

    def _text(self, text: int) -> bytes:
        begin = self._fields[text]
        return self._view[begin : begin + self._fields[SIZES + text]].tobytes()


def answer_of(message_id: bytes, queue_offset: int) -> bytes:
    """Return the serialized SendMessageResponse for one message that was stored."""
    length = varint(len(message_id))
    parts = [_ENTRY_STATUS, _MESSAGE_ID, length, message_id, _TRANSACTION_ID, length, message_id]
    if queue_offset:
        parts += _OFFSET, varint(queue_offset & _OFFSET_BITS)
    entry = b"".join(parts)
    return b"".join((_STATUS, _ENTRIES, varint(len(entry)), entry))


@lru_cache(maxsize=1024)
def _host_bytes(host: str) -> Any:
    return np.frombuffer(encode_host(host), np.uint8)


@lru_cache(maxsize=1024)
def _tail_of(topic: str, stamp: Stamp) -> Any:
    return np.frombuffer(stamp_of_topic(topic, 0, stamp), np.uint8)
