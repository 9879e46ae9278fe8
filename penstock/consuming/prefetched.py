"""Messages that a subscription has received and not yet handed on; its receiver bounds them."""

from __future__ import annotations

from collections import deque

from penstock.consuming.damaged import OnDamaged
from penstock.errors import DataLoss
from penstock.leased import LeasedBatch, LeasedRecord, Received, Settles
from penstock.record import Records
from storage.format.record_layout import TOTAL_SIZE


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
    """Records in the order they came; an error has the place of its record.

    One thread may add while another one takes. An interrupt (Ctrl-C) of the one that takes raises wherever a
    call returns, so all state of a handed out record changes after the last call. ``current`` was handed out
    last; it is acknowledged when the next one is asked for.
    """

    def __init__(self, outcomes: Settles, on_damaged: OnDamaged | None) -> None:
        self._outcomes = outcomes
        self._on_damaged = on_damaged
        self._parts: deque[_UnreadAnswer | DataLoss] = deque()
        self._added_count = self._added_bytes = 0
        self._passed_count = self._passed_bytes = 0
        self.current: LeasedRecord | LeasedBatch | None = None

    @property
    def message_count(self) -> int:
        """The number of records that are left."""
        return self._added_count - self._passed_count

    @property
    def size_bytes(self) -> int:
        """Bytes of the records that are left."""
        return self._added_bytes - self._passed_bytes

    def clear(self) -> None:
        """Forget all."""
        self._parts.clear()
        self._passed_count, self._passed_bytes = self._added_count, self._added_bytes

    def add(self, received: Received, client_id: str) -> None:
        """Take in the records of an answer, leased for ``client_id``."""
        if received.records:
            self._added_count += len(received.records)
            self._added_bytes += len(received.records.raw)
            self._parts.append(_UnreadAnswer(received, client_id))

    def add_error(self, error: DataLoss) -> None:
        """Add an error in a record's place."""
        self._parts.append(error)

    def acknowledge_current(self) -> None:
        """Say that what was handed out last is done, unless it was settled."""
        if self.current is not None:
            self.current.ack()
            self.current = None

    def has_next(self) -> bool:
        """Return whether a record or an error is left; damage in front is reported, if there is who wants to know."""
        while self._parts:
            first = self._parts[0]
            if isinstance(first, _UnreadAnswer):
                if first.count:
                    return True
                del self._parts[0]
            elif self._on_damaged is not None and first.damage is not None:
                del self._parts[0]
                self._on_damaged(first.topic, first.queue_id, first.damage)
            else:
                return True
        return False

    def _first(self) -> _UnreadAnswer:
        first = self._parts[0]
        if isinstance(first, DataLoss):
            del self._parts[0]
            raise first
        return first

    def next_record(self) -> LeasedRecord:
        """Return the next record where `has_next` says that there is one, or raise the error in its place."""
        answer = self._first()
        received, index, position = answer.received, answer.index, answer.position
        raw = received.records.raw
        width = answer.width
        record = LeasedRecord(
            raw,
            position,
            attempt=received.attempts[index],
            receipt_handle=received.receipt_handles[index * width : (index + 1) * width],
            outcomes=self._outcomes,
            client_id=answer.client_id,
        )
        size = TOTAL_SIZE.unpack_from(raw, position)[0]
        answer.index = index + 1
        answer.position = position + size
        self._passed_count += 1
        self._passed_bytes += size
        self.current = record
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
        answer.index = index + count
        answer.position = end
        self._passed_count += count
        self._passed_bytes += end - position
        self.current = batch
        return batch
