"""Plain ProduceRequests from their bytes to slices that the store takes, and their answers."""

from __future__ import annotations

from services.writer.produce_kernels import (
    REQUEST_AT,
    REQUEST_SIZE_MAX,
    read_request,
    write_answer,
)
from storage.log.message_slices import MessageSlices


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
