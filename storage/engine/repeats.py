"""Requests of producers: stored once, and answered each time with what the first was answered.

What is in the log answers a repeat: its records say where they are and when they were stored. A
request of which a stop has left the first records alone is completed: the rest is appended as one
more part of it.

A first attempt is taken for new, which the append checks under its lock. If anything is against it,
it goes the way of a repeat: that what is stored is asked for first, and answered though its topic
be gone since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from storage.engine.put_results import PARKING_TOPICS
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    OutcomeForgotten,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
)
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.message_id import encode_message_id
from storage.format.producer_windows import Parts, is_torn
from storage.format.properties import REAL_QID, REAL_TOPIC, TIMER_OUT_MS, UNIQ_KEY
from storage.format.record import Record, decode_record
from storage.format.record_layout import BODY_CRC_POSITION, RECORD_SIZE_MIN
from storage.kernels.batch import group_by_queue
from storage.kernels.columns import (
    CHECK_ALL,
    COMMIT_OFFSET,
    POSITION,
    QUEUE_ID,
    QUEUE_OFFSET,
    STOP_END,
    STORE_TIMESTAMP,
    TOPIC_LENGTH,
    TOPIC_POSITION,
    new_rows,
)
from storage.kernels.producer_sequences import (
    FOUND_COLUMN_COUNT,
    PRODUCER_ID,
    SEQUENCE,
    find_sequences,
)
from storage.kernels.scan import scan_records
from storage.log.batches import UNLIMITED
from storage.message import BatchResult, ProducerSequence, PutResult, QueueRange
from storage.producers.windows import StoredAlready, check_not_busy, is_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from storage.engine.engine import Engine
    from storage.kernels.columns import ByteArray, Rows
    from storage.log.batches import Prepared
    from storage.message import Message
    from storage.producers.windows import ProducerWindows

_CRC_BYTES: Final = np.arange(BODY_CRC_POSITION, BODY_CRC_POSITION + 4)

Result = TypeVar("Result")


class _StoredPart(NamedTuple):
    """Records of a request that lie one after the other; positions of rows are in ``data``."""

    data: ByteArray
    rows: Rows
    end_offset: int

    def producer(self) -> tuple[int, int]:
        """Return whose request the first record says it is of, and which."""
        found = np.zeros((1, FOUND_COLUMN_COUNT), np.int64)
        find_sequences(self.data, self.rows[:1], found)
        return found.item(0, PRODUCER_ID), found.item(0, SEQUENCE)

    def body_crcs(self) -> list[bytes]:
        return body_crcs(self.data, self.rows)

    def ranges(self) -> list[QueueRange]:
        count = len(self.rows)
        group_of, first_row, sizes = (np.empty(count, np.int64) for _ in range(3))
        groups = int(group_by_queue(self.data, self.rows, count, group_of, first_row, sizes))
        return [
            QueueRange(
                self.topic(row), int(self.rows[row, QUEUE_ID]), int(self.rows[row, QUEUE_OFFSET]), size
            )
            for row, size in zip(first_row[:groups].tolist(), sizes[:groups].tolist(), strict=True)
        ]  # fmt: skip

    def topic(self, row: int) -> str:
        begin = int(self.rows[row, TOPIC_POSITION])
        return self.data[begin : begin + int(self.rows[row, TOPIC_LENGTH])].tobytes().decode()

    def records(self) -> list[Record]:
        data = self.data.data
        return [decode_record(data, position) for position in self.rows[:, POSITION].tolist()]


def body_crcs(data: ByteArray, rows: Rows) -> list[bytes]:
    """Return the checksum of each record's body."""
    packed = data[rows[:, POSITION, None] + _CRC_BYTES].tobytes()
    return [packed[at : at + 4] for at in range(0, len(packed), 4)]


class RequestAppender(Protocol):
    """What is needed of the appender."""

    @property
    def lock(self) -> AbstractContextManager[bool]: ...
    @property
    def windows(self) -> ProducerWindows: ...
    @property
    def prepare(self) -> Callable[[bytes | bytearray | memoryview], Prepared]: ...
    def put_all(
        self,
        messages: Sequence[Message],
        born_host: str,
        producer: ProducerSequence,
        torn: Parts = (),
    ) -> list[PutResult]: ...
    def append_records(
        self,
        records: bytes | bytearray | memoryview,
        producer: ProducerSequence,
        torn: Parts = (),
        *,
        queues_max: int = ...,
    ) -> BatchResult | None: ...


class Repeats:
    """Appends what producers request, unless it is in the log."""

    def __init__(self, appender: RequestAppender, engine: Engine) -> None:
        self._appender = appender
        self._engine = engine

    def is_new(self, producer: ProducerSequence) -> bool:
        """Do what ``StoreWriter.is_new`` does."""
        appender = self._appender
        with appender.lock:
            return not producer.age_ms and appender.windows.is_new(*producer[:2])

    def put(
        self, messages: Sequence[Message], born_host: str, producer: ProducerSequence
    ) -> list[PutResult]:
        """Do what ``Appender.put`` does."""
        if not messages:
            return []
        if not producer.age_ms and is_sequence(producer):
            try:
                return self._appender.put_all(messages, born_host, producer)
            except (StoredAlready, StoreError) as against:
                check_not_busy(against)
        bodies = [message.body for message in messages]

        def append(torn: Parts, stored_count: int) -> list[PutResult]:
            return self._appender.put_all(messages[stored_count:], born_host, producer, torn)

        def is_of(parts: list[_StoredPart], count: int | None) -> bool:
            stored = [record.body for part in parts for record in part.records()]
            return stored == bodies[:count]

        results, parts = self._once(producer, append, is_of)
        if parts is None:
            return results or []
        host = self._engine.store_host
        return [_put_result(record, host) for part in parts for record in part.records()]

    def append_batch(
        self, records: bytes | bytearray | memoryview, producer: ProducerSequence, queues_max: int
    ) -> BatchResult | None:
        """Do what ``Appender.append_batch`` does with records that may be stored."""
        appender = self._appender

        def append(torn: Parts, stored_count: int) -> BatchResult | None:
            if not stored_count:
                return appender.append_records(records, producer, torn, queues_max=queues_max)
            begin = appender.prepare(records).rows.item(stored_count, POSITION)
            return appender.append_records(memoryview(records)[begin:], producer, torn)

        def is_of(parts: list[_StoredPart], count: int | None) -> bool:
            prepared = appender.prepare(records)
            given = body_crcs(prepared.data, prepared.rows[: prepared.record_count])
            stored = [crc for part in parts for crc in part.body_crcs()]
            return stored == given[:count]

        result, parts = self._once(producer, append, is_of, reads=queues_max == UNLIMITED)
        if parts is None:
            return result
        return BatchResult(
            commit_offset=parts[0].rows.item(0, COMMIT_OFFSET),
            end_commit_offset=parts[-1].end_offset,
            record_count=sum(len(part.rows) for part in parts),
            store_timestamp_ms=parts[0].rows.item(0, STORE_TIMESTAMP),
            ranges=tuple(each for part in parts for each in part.ranges()),
            repeated=True,
        )

    def _once(
        self,
        producer: ProducerSequence,
        append: Callable[[Parts, int], Result],
        is_of: Callable[[list[_StoredPart], int | None], bool],
        *,
        reads: bool = True,
    ) -> tuple[Result | None, list[_StoredPart] | None]:
        """Append a request unless it is stored; return the result, or else the records that there are.

        ``append(torn, n)`` appends all but the first n records, which are in the parts ``torn``; ``is_of`` says whether stored records
        are the request's first n, all of them for None. Nothing is returned of a stored one unless ``reads``. Raises
        InvalidMessage, OutcomeForgotten, and of a request of which nothing is stored what ``append`` raises.
        """
        if not is_sequence(producer):
            raise InvalidMessage("producer", "the id, the sequence or the age is no such number")
        appender = self._appender
        torn: Parts = ()
        stored_count = 0
        while True:
            try:
                with appender.lock:  # before anything else is asked: a topic may be gone since
                    known = appender.windows.find(producer)
                if known is not None and known != torn:
                    raise StoredAlready(known)
                result = append(torn, stored_count)
            except StoredAlready as stored:
                if not reads:
                    return None, None
                parts = self._read(producer, stored.parts)
                stored_count = sum(len(part.rows) for part in parts)
                if not is_of(parts, stored_count if is_torn(stored.parts) else None):
                    raise InvalidMessage(
                        "producer", f"request {producer.sequence} was stored with other messages"
                    ) from None
                if not is_torn(stored.parts):
                    return None, parts
                torn = stored.parts
            except (StoreBusy, StoreFull, StoreClosed, StoreFailed, OutcomeForgotten):
                raise
            except StoreError as refused:
                if not torn:
                    raise
                if isinstance(refused, InvalidBatch):
                    refused = InvalidBatch(refused.record_index + stored_count, refused.problem)
                raise OutcomeForgotten(
                    *producer[:2],
                    f"its first {stored_count} records are stored, and the others refused: {refused}",
                ) from refused
            else:
                if not torn:
                    return result, None
                torn = ()  # the next turn finds all of it

    def _read(self, producer: ProducerSequence, parts: Parts) -> list[_StoredPart]:
        """Return the records of a request. Raises OutcomeForgotten if they are not there as they were stored."""
        ends = parts[: len(parts) // 2 * 2]
        found = [
            self._read_part(begin, end) for begin, end in zip(ends[::2], ends[1::2], strict=True)
        ]
        if None not in found:
            stored = cast("list[_StoredPart]", found)
            if stored[0].producer() == producer[:2]:
                return stored
        raise OutcomeForgotten(
            *producer[:2], "it was stored, and its records are deleted or damaged since"
        )

    def _read_part(self, begin: int, end: int) -> _StoredPart | None:
        file = self._engine.committed_file(end - 1)
        if file is None or begin < file.start_offset:
            return None
        rows = new_rows((end - begin) // RECORD_SIZE_MIN)
        at = begin - file.start_offset
        count, _, stop = scan_records(file.array, at, at + end - begin, begin, CHECK_ALL, rows)
        return _StoredPart(file.array, rows[:count], end) if stop == STOP_END and count else None


def _put_result(record: Record, store_host: bytes) -> PutResult:
    """Return what was answered when a message was stored."""
    properties = record.properties
    topic, queue_id, queue_offset, recall_ms = record.topic, record.queue_id, record.queue_offset, 0
    if topic in PARKING_TOPICS:
        recall_ms = 0 if topic == SCHEDULE_TOPIC else int(properties[TIMER_OUT_MS]) + 1
        topic, queue_id, queue_offset = properties[REAL_TOPIC], int(properties[REAL_QID]), -1
    return PutResult(
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_offset=record.commit_offset,
        message_id=encode_message_id(store_host, record.commit_offset),
        unique_key=properties.get(UNIQ_KEY, ""),
        store_timestamp_ms=record.store_timestamp_ms,
        recall_ms=recall_ms,
        repeated=True,
    )
