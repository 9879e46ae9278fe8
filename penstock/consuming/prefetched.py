"""What a subscription has received and not handed on yet, bounded by messages and bytes by who asks for more."""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.errors import DataLoss
from penstock.leased import LeasedBatch, LeasedRecord, Received, Settles
from penstock.record import Records, head_of

_SIZE: Final = 0  # of a record's first fields


class _UnreadAnswer:
    """The records of one answer that are left, from a position of its bytes on."""

    __slots__ = ("client_id", "index", "position", "received", "width")

    def __init__(self, received: Received, client_id: str) -> None:
        self.received = received
        self.client_id = client_id
        self.index = 0
        self.position = 0
        self.width = received.handle_width

    @property
    def count(self) -> int:
        return len(self.received.records) - self.index


class Prefetched:
    """Records in the order they came; an error stands where its record would.

    ``message_count`` and ``size_bytes`` are those of all that is left.
    """

    def __init__(self, outcomes: Settles) -> None:
        self._outcomes = outcomes
        self._parts: deque[_UnreadAnswer | DataLoss] = deque()
        self.message_count = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._parts)

    def clear(self) -> None:
        """Forget all."""
        self._parts.clear()
        self.message_count = self.size_bytes = 0

    def add(self, received: Received, client_id: str) -> None:
        """Take in the records of an answer, leased for ``client_id``."""
        if received.records:
            self._parts.append(_UnreadAnswer(received, client_id))
            self.message_count += len(received.records)
            self.size_bytes += len(received.records.raw)

    def add_error(self, error: DataLoss) -> None:
        """Have an error raised in its place."""
        self._parts.append(error)

    def _first(self) -> _UnreadAnswer:
        first = self._parts[0]
        if isinstance(first, DataLoss):
            self._parts.popleft()
            raise first
        return first

    def _passed(self, answer: _UnreadAnswer, count: int, size: int) -> None:
        answer.index += count
        answer.position += size
        self.message_count -= count
        self.size_bytes -= size
        if not answer.count:
            self._parts.popleft()

    def next_record(self) -> LeasedRecord:
        """Return the next record, of at least one that is left, or raise the error in its place."""
        answer = self._first()
        received, index, position = answer.received, answer.index, answer.position
        raw = received.records.raw
        head = head_of(raw, position)
        width = answer.width
        record = LeasedRecord(
            raw,
            position,
            head,
            attempt=received.attempts[index],
            receipt_handle=received.receipt_handles[index * width : (index + 1) * width],
            outcomes=self._outcomes,
            client_id=answer.client_id,
        )
        self._passed(answer, 1, head[_SIZE])
        return record

    def next_batch(self, max_messages: int) -> LeasedBatch:
        """Return the next records, all of one answer, or raise the error in their place."""
        answer = self._first()
        received, index, position = answer.received, answer.index, answer.position
        raw = received.records.raw
        count = min(max_messages, answer.count)
        end = len(raw) if count == answer.count else received.records.end_of(count, position)
        width = answer.width
        batch = LeasedBatch(
            Records(raw[position:end], count),
            received.attempts[index : index + count],
            received.receipt_handles[index * width : (index + count) * width],
            outcomes=self._outcomes,
            client_id=answer.client_id,
        )
        self._passed(answer, count, end - position)
        return batch
