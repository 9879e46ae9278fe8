"""The writing half of a store: the one process that appends.

Threads: callers append under ``_append_lock``; the flush thread (and with the pool the commit thread)
moves positions; dispatch builds queues behind the confirmed offset; the keeper raises the durable
checkpoint. What an acknowledgement means is decided by ``acknowledged_offset`` alone:

=====  =====  ==============================================================
mode   pool   acknowledged when the record is
=====  =====  ==============================================================
sync   any    on the device
async  no     in the page cache: survives the process, not the machine
async  yes    in the pool's shared memory: the same, replayed at the next start
=====  =====  ==============================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from storage.batches import BatchPreparer, Prepared, QueueKey
from storage.clock import Clock, SystemClock
from storage.commit_log import Batch
from storage.config import StoreConfig
from storage.engine import Engine, open_engine
from storage.errors import (
    InvalidMessage,
    QueueNotFound,
    StoreBusy,
    StoreClosed,
    StoreError,
    StoreFailed,
)
from storage.files.filesystem import OsFileSystem
from storage.format.hosts import IPV4_HOST_SIZE
from storage.format.message_id import encode_message_id
from storage.format.record import complete_record
from storage.format.record_layout import BLANK_SIZE
from storage.kernels.columns import COMMIT_OFFSET, QUEUE_OFFSET
from storage.message import BatchResult, Message, PutResult, QueueRange
from storage.open_transaction import LogAccess
from storage.plain_message import PlainMessages
from storage.structured import MessageEncoder
from storage.transactions import Transactions

if TYPE_CHECKING:
    from storage.files.filesystem import FileSystem
    from storage.files.mapped_file import MappedFile
    from storage.recovery import Recovered
    from storage.topics import TopicConfig

BUSY_RETRY_MS: Final = 20
LOCAL_HOST: Final = "127.0.0.1:0"

Written = TypeVar("Written")
Write = Callable[["MappedFile", int, int, int], Written]
"""Stores a record at the file's appended position, given queue id, queue offset and store time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatus:
    """How far the writer is. All offsets are ends; ``problem`` says why it is not writable."""

    min_commit_offset: int
    appended_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    writable: bool
    problem: str
    flush_mode: str
    transient_pool: bool


class StoreWriter:
    """Appends to one store directory. All methods are safe to call from several threads."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._config = engine.config
        self._sync = self._config.flush_mode == "sync"
        self._append_lock = threading.Lock()
        self._topic_lock = threading.Lock()  # taken before the append lock
        self._next_offsets: dict[QueueKey, int] = {}
        self._closed = False
        host_bytes = engine.store_host
        self._preparer = BatchPreparer(
            body_size_max=self._config.body_size_max,
            store_host_size=len(host_bytes),
            append_crc=self._config.append_property_crc,
        )
        self.transactions = Transactions(
            engine.filesystem, engine.root, self._log_access(), clock,
            timeout_ms=self._config.transaction_timeout_ms,
        )  # fmt: skip
        self._encoder = MessageEncoder(
            engine.topics,
            clock,
            store_host=self._config.store_host,
            body_size_max=self._config.body_size_max,
            property_crc=self._config.append_property_crc,
        )
        self._plain = (
            PlainMessages(
                engine.topics,
                self._encoder,
                store_host=host_bytes,
                body_size_max=self._config.body_size_max,
                record_size_max=engine.log.files.file_size - BLANK_SIZE,
                property_crc=self._config.append_property_crc,
            )
            if len(host_bytes) == IPV4_HOST_SIZE
            else None
        )

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: StoreConfig | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        waits_for_files: bool = True,
    ) -> StoreWriter:
        """Open a store for writing, creating it in an empty directory, after its recovery.

        An append that needs a log file which is not at hand waits for it, up to 0.2 s or for as
        long as making it takes; without ``waits_for_files``, as an event loop needs it, it raises
        StoreBusy and the file is made meanwhile.

        Raises StoreLocked, NotAStore, UnsupportedFormat, StoreFull.
        """
        clock = clock or SystemClock()
        engine = open_engine(
            Path(directory),
            config or StoreConfig(),
            filesystem or OsFileSystem(),
            clock,
            waits_for_files=waits_for_files,
        )
        writer = cls(engine, clock)
        try:
            writer.transactions.recover()
        except BaseException:
            writer.close()
            raise
        return writer

    def _log_access(self) -> LogAccess:
        """What transactions need of the log; what is decided is appended whatever topics allow now."""
        engine = self._engine

        def wait_flushed(end_commit_offset: int, timeout_s: float) -> bool:
            engine.flusher.hurry()
            return engine.flusher.wait(end_commit_offset, timeout_s)

        return LogAccess(
            prepare=self._preparer.prepare,
            check_size=engine.log.check_size,
            check_queue=self._check_queue,
            check_open=self._check_open,
            append=lambda prepared: self._append(prepared, decided=True)[0],
            appended_offset=lambda: engine.log.appended_offset,
            wait_flushed=wait_flushed,
            fail=engine.fail,
            files=engine.log.files,
        )

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # ---- appending

    def put(self, messages: Sequence[Message], *, born_host: str = LOCAL_HOST) -> list[PutResult]:
        """Append messages, all or none, and return where each is; does not wait for durability.

        Raises InvalidMessage, TopicNotFound, QueueNotFound, StoreBusy, StoreFull, StoreFailed.
        """
        if len(messages) == 1 and len(self._engine.store_host) == IPV4_HOST_SIZE:
            return [self._put_one(messages[0], born_host)]
        self._check_open()
        if not messages:
            return []
        encoded = [self._encoder.encode(message, born_host) for message in messages]
        prepared = self._preparer.prepare(b"".join([record for record, _, _ in encoded]))
        _, store_timestamp_ms, _ = self._append(prepared)
        placed = prepared.placed_rows[
            : prepared.record_count, (QUEUE_OFFSET, COMMIT_OFFSET)
        ].tolist()
        host = self._engine.store_host
        return [
            PutResult(
                topic=message.topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                commit_offset=commit_offset,
                message_id=encode_message_id(host, commit_offset),
                unique_key=unique_key,
                store_timestamp_ms=store_timestamp_ms,
            )
            for message, (_, unique_key, queue_id), (queue_offset, commit_offset) in zip(
                messages, encoded, placed, strict=True
            )
        ]

    def _put_one(self, message: Message, born_host: str) -> PutResult:
        """Append one message; what its encoder made needs no check by a kernel."""
        encoded, unique_key, queue_id = self._encoder.encode(message, born_host)
        record = bytearray(encoded)
        size = len(record)
        host = self._engine.store_host

        def write(
            file: MappedFile, queue_id: int, queue_offset: int, store_timestamp_ms: int
        ) -> PutResult:
            position = file.appended_position
            commit_offset = file.start_offset + position
            complete_record(
                record, queue_offset=queue_offset, commit_offset=commit_offset,
                store_timestamp_ms=store_timestamp_ms, store_host=host,
                property_crc=self._config.append_property_crc,
            )  # fmt: skip
            file.write_array.data[position : position + size] = record
            return PutResult(
                message.topic, queue_id, queue_offset, commit_offset,
                encode_message_id(host, commit_offset), unique_key, store_timestamp_ms,
            )  # fmt: skip

        key = (message.topic.encode(), queue_id)
        self._engine.log.check_size(size)
        with self._append_lock:
            self._admit(size)
            self._check_queue(key)
            return self._append_one(key, size, write)[0]

    def put_plain(self, request: bytes, *, born_host: str) -> tuple[bytes, int] | None:
        """Append the message of a serialized ProduceRequest; does not wait for durability.

        Returns the serialized ProduceResponse and the record's end in the log. None, with nothing
        done, unless it is one message that nothing can be wrong with: then ``put`` decides.

        Raises StoreBusy, StoreFull, StoreFailed.
        """
        plain = self._plain
        if plain is None:
            return None
        with self._append_lock:
            found = plain.read(request, born_host)
            if found is None:
                return None
            key, size = found
            self._admit(size)
            return self._append_one(key, size, plain.write)

    def _append_one(self, key: QueueKey, size: int, write: Write[Written]) -> tuple[Written, int]:
        """Append the record of ``size`` bytes that ``write`` stores; return its result, and the end.

        Runs under the append lock. Raises StoreBusy or StoreFull, and then nothing was stored.
        """
        log = self._engine.log
        queue_offset = self._next_offset(key)
        store_timestamp_ms = self._clock.now_ms()
        file = log.file_for(size)
        written = write(file, key[1], queue_offset, store_timestamp_ms)
        end = log.mark_appended(file, file.appended_position + size)
        self._next_offsets[key] = queue_offset + 1
        self._engine.appended(store_timestamp_ms)
        return written, end

    def append_batch(self, records: bytes | bytearray | memoryview) -> BatchResult:
        """Append records that a client encoded, all or none; does not wait for durability.

        Raises InvalidBatch with the index of the first bad record, TopicNotFound, QueueNotFound,
        InvalidMessage when the batch is longer than a file, StoreBusy, StoreFull, StoreFailed.
        """
        self._check_open()
        prepared = self._preparer.prepare(records)
        commit_offset, store_timestamp_ms, firsts = self._append(prepared)
        return BatchResult(
            commit_offset=commit_offset,
            end_commit_offset=commit_offset + prepared.placed_size,
            record_count=prepared.record_count,
            store_timestamp_ms=store_timestamp_ms,
            ranges=tuple(
                QueueRange(topic.decode(), queue_id, first, size)
                for (topic, queue_id), first, size in zip(
                    prepared.queues, firsts, prepared.sizes, strict=True
                )
            ),
        )

    def _append(self, prepared: Prepared, *, decided: bool = False) -> tuple[int, int, list[int]]:
        engine = self._engine
        log = engine.log
        log.check_size(prepared.placed_size)
        with self._append_lock:
            self._admit(prepared.placed_size)
            check = self._check_topic if decided else self._check_queue
            for key in prepared.queues:
                check(key)
            firsts = [self._next_offset(key) for key in prepared.queues]
            next_queue_offsets = np.array(firsts, np.int64)
            store_timestamp_ms = self._clock.now_ms()
            commit_offset = log.append(
                Batch(
                    prepared.data, prepared.rows, prepared.record_count, prepared.group_of,
                    next_queue_offsets, prepared.placed_rows, prepared.placed_size,
                ),
                store_timestamp_ms,
            )  # fmt: skip
            for key, first, size in zip(prepared.queues, firsts, prepared.sizes, strict=True):
                self._next_offsets[key] = first + size
            engine.appended(store_timestamp_ms)
        return commit_offset, store_timestamp_ms, firsts

    def _admit(self, size: int) -> None:
        """Raise StoreBusy if ``size`` more bytes would be too many that no sync has covered."""
        self._check_open()
        log = self._engine.log
        unflushed = log.appended_offset - log.flushed_offset
        # A store that holds nothing unflushed takes any batch, however small the bound.
        if unflushed and unflushed + size > self._config.unflushed_bytes_max:
            self._engine.flusher.hurry()
            raise StoreBusy(f"{unflushed} bytes wait to be flushed", retry_delay_ms=BUSY_RETRY_MS)

    def _check_queue(self, key: QueueKey) -> None:
        """Raise unless the topic exists, may be written to, and has the queue."""
        topic_name, queue_id = key[0].decode(), key[1]
        topic = self._engine.topics.get(topic_name, to_send=True)
        if not topic.writable:
            raise InvalidMessage(
                "topic", f"{topic_name!r} may not be written to: perm {topic.perm}"
            )
        if queue_id >= topic.write_queue_count:
            raise QueueNotFound(topic_name, queue_id, topic.write_queue_count)

    def _check_topic(self, key: QueueKey) -> None:
        """Raise unless the topic exists: what was decided is stored whatever it allows since."""
        self._engine.topics.get(key[0].decode())

    def _next_offset(self, key: QueueKey) -> int:
        offset = self._next_offsets.get(key)
        if offset is None:
            # Nothing of this queue was appended since recovery, so what is on disk is all of it.
            offset = self._engine.queues.get(key[0].decode(), key[1]).next_offset
        return offset

    # ---- acknowledging

    @property
    def appended_offset(self) -> int:
        """End of what was appended."""
        return self._engine.log.appended_offset

    @property
    def acknowledged_offset(self) -> int:
        """End of what an acknowledgement may rely on (see the module)."""
        log = self._engine.log
        return log.flushed_offset if self._sync else log.appended_offset

    def wait_acknowledged(self, end_commit_offset: int, timeout_s: float | None = None) -> bool:
        """Wait until everything before the offset may be acknowledged; False when time is up.

        Raises StoreFailed if it never will be.
        """
        if self.acknowledged_offset >= end_commit_offset:
            return True
        return self._engine.flusher.wait(end_commit_offset, timeout_s)

    def add_ack_listener(self, callback: Callable[[int], None]) -> None:
        """Call back, from the flush thread, each time the offset rises or never will again."""
        self._engine.flusher.add_listener(callback)
        self._engine.flusher.add_failure_listener(lambda _: callback(self.acknowledged_offset))

    def wait_dispatched(self, end_commit_offset: int, timeout_s: float) -> bool:
        """Wait until consumers can see everything before the offset; False when time is up."""
        return self._engine.dispatch.wait(end_commit_offset, timeout_s)

    def failure(self) -> StoreError | None:
        """Return why nothing more will be acknowledged, if that is so."""
        return self._engine.failure or self._engine.flusher.failure

    # ---- topics

    def create_topic(
        self, name: str, queue_count: int, *, attributes: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """Create a topic; durable on return. Raises TopicExists, InvalidMessage."""
        with self._topic_lock:
            self._check_open()
            topic = self._engine.topics.create(
                name,
                queue_count=queue_count,
                attributes=attributes or {},
                now_ms=self._clock.now_ms(),
            )
            self._engine.topics_changed()
            return topic

    def update_topic(
        self,
        name: str,
        *,
        queue_count: int | None = None,
        read_queue_count: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> TopicConfig:
        """Change a topic; durable on return. ``queue_count`` sets read and write queues alike.

        Queues that go out of use keep their messages and go on where they were when they return.
        """
        with self._topic_lock:
            self._check_open()
            topic = self._engine.topics.update(
                name,
                read_queue_count=queue_count if read_queue_count is None else read_queue_count,
                write_queue_count=queue_count,
                perm=perm,
                attributes=attributes or {},
                now_ms=self._clock.now_ms(),
            )
            self._engine.topics_changed()
            return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its queues; its records stay in the log. Durable on return."""
        self._check_open()
        self._engine.topics.get(name)
        self._engine.settle()  # so that appends wait for what came since only
        with self._topic_lock, self._append_lock:
            self._check_open()
            self._engine.delete_topic(name, now_ms=self._clock.now_ms())
            topic = name.encode()
            for key in [key for key in self._next_offsets if key[0] == topic]:
                del self._next_offsets[key]

    def list_topics(self) -> list[TopicConfig]:
        """Return all topics by name."""
        return list(self._engine.topics)

    def describe_topic(self, name: str) -> tuple[TopicConfig, list[tuple[int, int]]]:
        """Return a topic and, for each of its queues, the first and the next queue offset."""
        topic = self._engine.topics.get(name)
        offsets = []
        for queue_id in range(topic.queue_count):
            queue = self._engine.queues.get(name, queue_id)
            first = queue.find_first(self._engine.log.min_offset)
            offsets.append((first, queue.next_offset))
        return topic, offsets

    # ---- state

    @property
    def config(self) -> StoreConfig:
        """The configuration in force, with the sizes of this store."""
        return self._config

    @property
    def recovered(self) -> Recovered:
        """What recovery found when the store was opened."""
        return self._engine.recovered

    @property
    def stopped_unclean(self) -> bool:
        """Whether whoever had the store before, a broker or ours, did not stop in order."""
        return self._engine.abort_found

    def status(self) -> WriterStatus:
        """Return how far the writer is, and whether it can write."""
        log = self._engine.log
        failure = self.failure()
        if self._closed:
            problem = "the store is closed"
        else:
            problem = str(failure or self._engine.dispatch.problem)
        return WriterStatus(
            min_commit_offset=log.min_offset,
            appended_offset=log.appended_offset,
            committed_offset=log.committed_offset,
            flushed_offset=log.flushed_offset,
            dispatched_offset=self._engine.dispatch.position,
            writable=failure is None and not self._closed,
            problem=problem,
            flush_mode=self._config.flush_mode,
            transient_pool=self._config.transient_pool,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        failure = self._engine.failure or self._engine.flusher.failure
        if failure is not None:
            # A new exception each time: raising the kept one would tie every caller's frames to it.
            raise StoreFailed(str(failure)) from failure

    def close(self) -> None:
        """Drain, make everything durable, and mark the stop as orderly. Safe to call twice.

        After a failure the stop is not marked, so that the next start verifies.
        """
        if not self._closed:
            self.transactions.close()
        with self._topic_lock, self._append_lock:
            if self._closed:
                return
            self._closed = True
        self._engine.close()
