"""The answers of a receive: plain records by kernels, all others through protobuf's objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from penstock.framing import varint
from penstock.v1 import leases_pb2
from services.gateway.messages.delivered_messages import fill_message
from services.gateway.messages.plain_deliveries.answer_kernels import write_delivery
from services.gateway.messages.plain_deliveries.fields import (
    ANSWER_SIZE_MAX,
    BODY,
    FIELD_COUNT,
    RECORD_SIZE,
    SIZES,
)
from services.gateway.messages.plain_deliveries.record_kernels import read_delivery
from services.gateway.v2 import definition_pb2 as v2
from services.gateway.v2 import service_pb2
from storage.format.record import decode_record

_TOPIC: Final = bytes([v2.Message.TOPIC_FIELD_NUMBER << 3 | 2])


class Deliveries:
    """Makes the messages of answers, one after the other in the same buffer; used by one thread."""

    def __init__(self) -> None:
        self._fields = np.zeros(FIELD_COUNT, np.int64)
        self._answer = np.zeros(ANSWER_SIZE_MAX, np.uint8)
        self._view = memoryview(self._answer.data)

    def answers(self, received: leases_pb2.ReceiveResponse, topic: v2.Resource) -> Iterator[bytes]:
        """Yield a serialized ReceiveMessageResponse for each record, as messages of ``topic``."""
        records = received.records
        data = np.frombuffer(records, np.uint8)
        name = topic.SerializeToString()
        resource = np.frombuffer(b"".join((_TOPIC, varint(len(name)), name)), np.uint8)
        handles = np.frombuffer(received.receipt_handles, np.uint8)
        handle_size = len(handles) // max(received.record_count, 1)
        position = 0
        for place, attempt in enumerate(received.attempts):
            handle_at = place * handle_size
            answer = self._plain(
                records, data, position, resource, handles, handle_at, handle_size, attempt
            )
            if answer is None:
                record = decode_record(records, position)
                size = record.total_size
                response = service_pb2.ReceiveMessageResponse()
                handle = received.receipt_handles[handle_at : handle_at + handle_size].decode()
                fill_message(
                    response.message, record, topic, receipt_handle=handle, attempt=attempt
                )
                answer = response.SerializeToString()
            else:
                size = int(self._fields[RECORD_SIZE])
            position += size
            yield answer

    def _plain(
        self, records: bytes, data: Any, position: int, resource: Any, handles: Any, handle_at: int,
        handle_size: int, attempt: int,
    ) -> bytes | None:  # fmt: skip
        fields = self._fields
        if not read_delivery(data, position, fields):
            return None
        body_at = int(fields[BODY])
        body = memoryview(records)[body_at : body_at + int(fields[SIZES + BODY])]
        digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()
        begin, end = write_delivery(
            self._answer, data, fields, resource, handles, handle_at, handle_size, attempt,
            np.frombuffer(digest, np.uint8),
        )  # fmt: skip
        return None if begin < 0 else self._view[begin:end].tobytes()
