"""Appending: the ways into the log, and the one lock under which records get their places."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from storage.counts import Histogram
from storage.engine.put_results import (
    ASKS_FOR_DELAY,
    as_parked,
    joined_results,
    put_results,
    recall_times_ms,
)
from storage.engine.queue_ends import QueueEnds
from storage.engine.repeats import Repeats
from storage.errors import (
    InvalidBatch,
    InvalidMessage,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreFull,
)
from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import new_rows
from storage.kernels.message_slices import (
    AGE,
    PRODUCER_ID,
    SEQUENCE,
    UNIQUE_HEAD_SIZE,
)
from storage.log.batches import (
    UNLIMITED,
    BatchPreparer,
    Prepared,
    QueueKey,
    check_sends,
    first_rows,
    highest_of_topics,
)
from storage.log.commit_log import NO_PRODUCER
from storage.log.message_encoder import MessageEncoder
from storage.log.message_slices import MessageSlices, PlainMessages
from storage.message import BatchResult, Message, ProducerSequence, PutResult, QueueRange
from storage.producers.windows import (
    ProducerWindows,
    StoredAlready,
    check_not_busy,
    check_untold,
    is_sequence,
)

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.engine import Engine
    from storage.format.producer_windows import Parts

BUSY_RETRY_MS: Final = 20
QUEUES_UNDER_LOCK_MAX: Final = 64  # are looked up on disk while nothing else is appended
_NO_ROWS: Final = new_rows(0)


class Appender:
    """Appends to the log of an engine; safe to call from several threads.

    While ``lock`` is held, nothing is appended. ``StoreWriter`` says what callers may rely on.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        config = engine.config
        self.windows = ProducerWindows(clock)
        self.lock = threading.Lock()
        self._engine = engine
        self._log = engine.log
        self._flusher = engine.flusher
        self._retention = engine.retention
        self._clock = clock
        self._unflushed_bytes_max = config.unflushed_bytes_max
        self._property_crc = config.append_property_crc
        self._store_host = engine.store_host
        self._ends = QueueEnds(engine.queues, engine.topics, self.lock)
        self.appended = self._ends.appended
        self.appended_count = self._ends.appended_count
        self.seconds = Histogram()  # from the wait for the lock until records are stored
        self._park: Callable[[Prepared], Prepared | None] | None = None
        self._expect_parked: Callable[[int], None] = lambda _: None
        self.is_closed = False
        preparer = BatchPreparer(
            body_size_max=config.body_size_max, store_host_size=len(self._store_host),
            append_crc=self._property_crc,
        )  # fmt: skip
        self.prepare = preparer.prepare
        self._prepare_few = preparer.prepare_few
        self.encoder = MessageEncoder(
            engine.topics, clock, store_host=config.store_host,
            body_size_max=config.body_size_max, property_crc=self._property_crc,
        )  # fmt: skip
        self.repeats = Repeats(self, engine)
        self._plain: PlainMessages | None = None
        if len(self._store_host) == IPV4_HOST_SIZE:
            self._plain = PlainMessages(
                engine.topics, self.encoder, body_size_max=config.body_size_max,
                record_size_max=engine.log.files.file_size - BLANK_SIZE,
                property_crc=self._property_crc,
            )  # fmt: skip

    def park_by(
        self, park: Callable[[Prepared], Prepared | None], expect: Callable[[int], None]
    ) -> None:
        """Have ``park`` say what is stored of batches with delays, and ``expect`` called with its end."""
        self._park, self._expect_parked = park, expect

    def put(
        self, messages: Sequence[Message], born_host: str, producer: ProducerSequence | None = None
    ) -> list[PutResult]:
        """Append messages, all or none, and none of a request that is stored."""
        check_sends({message.topic for message in messages})
        if producer is not None:
            return self.repeats.put(messages, born_host, producer)
        return self.put_all(messages, born_host) if messages else []

    def put_all(
        self, messages: Sequence[Message], born_host: str,
        producer: ProducerSequence | None = None, torn: Parts = (),
    ) -> list[PutResult]:  # fmt: skip
        """Append messages as one batch, of a producer if one is given. Raises StoredAlready."""
        self.check_open()
        encoded = [self.encoder.encode(message, born_host) for message in messages]
        tells = producer is not None
        prepared = self.prepare(b"".join([record for record, _, _ in encoded]), tells=tells)
        try:
            parked = self._parked(prepared)
        except InvalidBatch as refused:
            field, _, problem = refused.problem.partition(": ")
            raise InvalidMessage(field, f"message {refused.record_index}: {problem}") from None
        wanted = prepared.queues
        if parked is not None:
            prepared = parked._replace(placed_rows=new_rows(parked.record_count))
            if tells:
                prepared = prepared.telling()
        commit_offset, store_timestamp_ms, _ = self.append(
            prepared, decided=parked is not None, fills_rows=True, wanted=wanted,
            producer=producer, torn=torn,
        )  # fmt: skip
        results = put_results(
            messages, encoded, prepared.placed_rows[: prepared.record_count],
            store_host=self._store_host, store_timestamp_ms=store_timestamp_ms,
        )  # fmt: skip
        if parked is None:
            return results
        self._expect_parked(commit_offset + prepared.placed_size)
        return list(map(as_parked, results, recall_times_ms(parked)))

    def _parked(self, prepared: Prepared) -> Prepared | None:
        """Return what is stored instead of a batch of which records are delayed; None of another.

        Raises TopicNotFound, QueueNotFound, InvalidMessage, InvalidBatch, StoreFull.
        """
        if not prepared.features & ASKS_FOR_DELAY or self._park is None:
            return None
        self.check_open()
        self._check_not_refused()
        self._engine.topics.check_queues(prepared.queues)
        return self._park(prepared)

    def message_slices(self, size_bytes: int) -> MessageSlices:
        """Return a buffer for messages to be appended by ``put_slices``."""
        host = self._store_host if self._plain else bytes(IPV4_HOST_SIZE)
        head = self.encoder.unique_keys.head[:UNIQUE_HEAD_SIZE]
        return MessageSlices(size_bytes, store_host=host, unique_head=head)

    def put_slices(self, message: MessageSlices, born_host: str) -> int | None:
        """Append a message that lies in a buffer, if it is plain; return its record's end.

        Raises StoreBusy or StoreFull, and then nothing was stored.
        """
        plain = self._plain
        if plain is None:
            return None
        producer_id, sequence = message.fields.item(PRODUCER_ID), message.fields.item(SEQUENCE)
        if producer_id and message.fields.item(AGE):
            return None
        began = time.perf_counter()
        with self.lock:
            is_next = self.windows.is_next(producer_id, sequence)
            if producer_id and not is_next and not self.windows.is_new(producer_id, sequence):
                return None
            found = plain.find(message, born_host)
            if found is None:
                return None
            key, size = found
            self._admit(size)
            log = self._log
            queue_offset = self._ends.of(key)
            store_timestamp_ms = self._clock.now_ms()
            file = log.file_for(size)
            plain.write(message, file, key[1], queue_offset, store_timestamp_ms)
            end = log.mark_appended(file, file.appended_position + size)
            self._ends.move(key, queue_offset, queue_offset + 1, size)
            self._engine.appended(store_timestamp_ms)
            self.seconds.add(time.perf_counter() - began)
            if is_next:
                self.windows.note_next(sequence, end - size, end)
            elif producer_id:
                self.windows.note(producer_id, sequence, (end - size, end))
            return end

    def append_batch(
        self,
        records: bytes | bytearray | memoryview,
        producer: ProducerSequence | None = None,
        *,
        queues_max: int = UNLIMITED,
    ) -> BatchResult | None:
        """Append records that a client encoded, all or none.

        With ``queues_max`` None if they are for more queues, or of a request that is stored.
        """
        if producer is None:
            return self.append_records(records, queues_max=queues_max)
        if not producer.age_ms and is_sequence(producer):
            try:
                return self.append_records(records, producer, queues_max=queues_max)
            except (StoredAlready, StoreError) as against:
                check_not_busy(against)
        return self.repeats.append_batch(records, producer, queues_max)

    def append_together(
        self, batches: Sequence[memoryview], *, queues_max: int
    ) -> list[BatchResult] | None:
        """Do what ``StoreWriter.append_together`` does."""
        try:
            self.check_open()
            joined = self._prepare_few(b"".join(batches), queues_max=queues_max)
            if joined is None or joined.features & ASKS_FOR_DELAY:
                return None
            if (firsts := first_rows(joined, batches)) is None:
                return None
            _, store_timestamp_ms, _ = self.append(joined, fills_rows=True)
        except (StoreError, OSError):  # each alone says what is against it
            return None
        return joined_results(joined, firsts, store_timestamp_ms)

    def append_records(
        self, records: bytes | bytearray | memoryview, producer: ProducerSequence | None = None,
        torn: Parts = (), *, queues_max: int = UNLIMITED,
    ) -> BatchResult | None:  # fmt: skip
        """Append records as one batch, of a producer if one is given. Raises StoredAlready."""
        self.check_open()
        tells = producer is not None
        prepared = self._prepare_few(records, queues_max=queues_max, tells=tells)
        if prepared is None:
            return None
        parked, wanted = self._parked(prepared), prepared.queues
        if parked is not None:
            prepared = parked.telling() if tells else parked
        commit_offset, store_timestamp_ms, firsts = self.append(
            prepared, decided=parked is not None, wanted=wanted, producer=producer, torn=torn
        )
        if parked is not None:
            self._expect_parked(commit_offset + prepared.placed_size)
        ranges = [
            QueueRange(key[0].decode(), key[1], first, size)
            for key, first, size in zip(prepared.queues, firsts, prepared.sizes, strict=True)
        ]
        end_commit_offset = commit_offset + prepared.placed_size
        return BatchResult(
            commit_offset, end_commit_offset, prepared.record_count, store_timestamp_ms, tuple(ranges)
        )  # fmt: skip

    def append_parked(self, parked: Prepared, late: tuple[int, StoreError] | None = None) -> int:
        """Append records of the system topics of delayed messages; return their end. ``late`` is as in ``append``."""
        commit_offset, _, _ = self.append(parked, decided=True, late=late)
        end_commit_offset = commit_offset + parked.placed_size
        self._expect_parked(end_commit_offset)
        return end_commit_offset

    def append(
        self, prepared: Prepared, *, decided: bool = False, fills_rows: bool = False,
        wanted: Sequence[QueueKey] = (), producer: ProducerSequence | None = None, torn: Parts = (),
        late: tuple[int, StoreError] | None = None,
    ) -> tuple[int, int, list[int]]:  # fmt: skip
        """Append a checked batch; return its commit offset, store time, and each queue's first offset.

        With ``decided`` topics need only exist, but for the queues ``wanted``; with ``fills_rows``
        ``placed_rows`` are filled. From a time ``late`` on its error is raised. Of a request of a
        ``producer`` the parts ``torn`` are in the log; StoredAlready says that more is. Raises
        OutcomeForgotten, TopicNotFound, QueueNotFound, InvalidMessage, StoreBusy, StoreFull, StoreFailed.
        """
        log, topics = self._log, self._engine.topics
        log.check_size(prepared.placed_size)
        keys = checked = prepared.queues
        places = None
        if len(keys) > QUEUES_UNDER_LOCK_MAX:
            checked, places = highest_of_topics(keys), self._ends.places_of(keys)
        began = time.perf_counter()
        with self.lock:
            is_next = False
            if producer is not None:
                producer_id, sequence, age_ms = producer
                is_next = not age_ms and not torn and self.windows.is_next(producer_id, sequence)
                if not is_next and (parts := self.windows.find(producer)) not in (None, torn):
                    raise StoredAlready(parts)
                if not prepared.tells:
                    check_untold(producer, torn)
                    producer = None
            self._admit(prepared.placed_size, decided=decided)
            if decided:
                topics.check_topics(checked)
            topics.check_queues(highest_of_topics(wanted) if decided else checked)
            firsts = self._ends.of_all(keys, places)
            next_queue_offsets = firsts.copy()
            store_timestamp_ms = self._clock.now_ms()
            if late is not None and store_timestamp_ms >= late[0]:
                raise late[1]
            filled_rows = prepared.placed_rows if fills_rows else _NO_ROWS
            commit_offset = log.append(
                prepared, next_queue_offsets, filled_rows, store_timestamp_ms,
                producer or NO_PRODUCER,
            )  # fmt: skip
            if producer is not None:
                end = commit_offset + prepared.placed_size
                if is_next:
                    self.windows.note_next(sequence, commit_offset, end)
                else:
                    self.windows.note(producer_id, sequence, (*torn[:-1], commit_offset, end))
            self._ends.move_all(keys, firsts, next_queue_offsets, prepared.queue_bytes, places)
            self._engine.appended(store_timestamp_ms)
            self.seconds.add(time.perf_counter() - began)
        return commit_offset, store_timestamp_ms, firsts.tolist()

    def _check_not_refused(self) -> None:
        """Raise StoreFull while retention refuses what producers append."""
        if refusal := self._retention.refusal:
            raise StoreFull(refusal)

    def _admit(self, size: int, *, decided: bool = False) -> None:
        """Raise StoreBusy if ``size`` more bytes would be too many that no sync has covered.

        Raises StoreFull while retention refuses appends; what was decided releases what retention waits for.
        """
        self.check_open()
        if not decided:
            self._check_not_refused()
        log = self._log
        unflushed = log.appended_offset - log.flushed_offset
        # A store that holds nothing unflushed takes any batch, however small the bound.
        if unflushed and unflushed + size > self._unflushed_bytes_max:
            self._flusher.hurry()
            raise StoreBusy(f"{unflushed} bytes wait to be flushed", retry_delay_ms=BUSY_RETRY_MS)

    def check_queue(self, key: QueueKey) -> None:
        """Raise unless the topic may be written to and has the queue, and producers are not refused."""
        self._check_not_refused()
        self._engine.topics.check_queues([key])

    def check_open(self) -> None:
        """Raise StoreClosed after ``close``, StoreFailed once nothing more can be acknowledged."""
        if self.is_closed:
            raise StoreClosed("the store is closed")
        failure = self._engine.failure
        if failure is not None:
            # A new exception each time: raising the kept one would tie every caller's frames to it.
            raise StoreFailed(str(failure)) from failure

    def forget_topic(self, name: str) -> None:
        """Forget the offsets of a deleted topic's queues; runs under the lock."""
        self._ends.forget_topic(name)

    def close(self) -> None:
        """Refuse everything from here on; runs under the lock."""
        self.is_closed = True
