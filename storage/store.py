"""A whole store in one process: writer, indexer and reader over one directory.

The three parts are the ones that the services run, wired by nothing but the files and the checkpoint
page; this class only hides that they are three.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from storage.clock import Clock, SystemClock
from storage.config import StoreConfig
from storage.errors import StoreBusy, StoreFailed
from storage.files.filesystem import FileSystem
from storage.indexer import StoreIndexer
from storage.message import BatchResult, KeyQueryResult, Message, PullResult, PutResult
from storage.reader import StoreReader
from storage.workers import Threads, Workers
from storage.writer import StoreWriter, WriterStatus

if TYPE_CHECKING:
    from storage.tables.topics import TopicConfig

VISIBLE_TIMEOUT_S: Final = 10.0
Appended = TypeVar("Appended")


class MessageStore:
    """Messages in, messages out. Methods are safe to call from several threads.

    What ``put`` guarantees on return is the flush mode's: in sync mode the messages survive a power
    cut, in async mode the death of the process. A pull that starts after a put has returned sees it.
    """

    def __init__(
        self,
        reader: StoreReader,
        writer: StoreWriter | None,
        indexer: StoreIndexer | None,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._pause = threading.Event()  # never set: only waited on
        self._reader = reader
        self._writer = writer
        self._indexer = indexer
        self._put_offset = 0

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: StoreConfig | None = None,
        *,
        read_only: bool = False,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        workers: Workers | None = None,
    ) -> MessageStore:
        """Open a store, creating it in an empty directory, or with ``read_only`` only look at it.

        Read-only needs no lock and recovers nothing: it shows what the writer has confirmed.
        ``filesystem``, ``clock`` and ``workers`` are the machine's unless given; see ``storage.testing``.
        Raises StoreLocked, NotAStore, UnsupportedFormat, StoreFull.
        """
        config = config or StoreConfig()
        filesystem = filesystem or FileSystem()
        clock = clock or SystemClock()
        if read_only:
            reader = StoreReader.open(directory, config, filesystem=filesystem, clock=clock)
            return cls(reader, None, None, clock)
        workers = workers or Threads()
        writer = StoreWriter.open(
            directory, config, filesystem=filesystem, clock=clock, workers=workers
        )
        indexer = None
        try:
            indexer = StoreIndexer.open(
                directory,
                writer.config,
                filesystem=filesystem,
                clock=clock,
                unclean=writer.stopped_unclean,
                workers=workers,
            )
            indexer.start()
            reader = StoreReader.open(directory, writer.config, filesystem=filesystem, clock=clock)
        except BaseException:
            if indexer is not None:
                indexer.close()
            writer.close()
            raise
        return cls(reader, writer, indexer, clock)

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drain and stop: reader, indexer, writer. Safe to call twice."""
        with ExitStack() as parts:  # from the last to the first, each whatever the others say
            if self._indexer is not None:
                parts.callback(self._indexer.close)
            if self._writer is not None:
                parts.callback(self._writer.close)
            parts.callback(self._reader.close)

    @property
    def writer(self) -> StoreWriter:
        """The writing half. Raises StoreFailed in a store opened read-only."""
        if self._writer is None:
            raise StoreFailed("the store was opened read-only")
        return self._writer

    @property
    def reader(self) -> StoreReader:
        """The reading half."""
        return self._reader

    # ---- messages in

    def put(self, message: Message, *, timeout_s: float | None = None) -> PutResult:
        """Store one message and wait until it is as safe as the flush mode says.

        Waits for full buffers to drain, too. Raises InvalidMessage, TopicNotFound, QueueNotFound,
        StoreFull, StoreFailed, and StoreBusy when time is up: nothing was stored if it says that a
        buffer is full; otherwise it was, and may yet become safe.
        """
        return self.put_all([message], timeout_s=timeout_s)[0]

    def put_all(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[PutResult]:
        """Store messages, all or none; otherwise as ``put``."""
        results = self._retry_busy(lambda: self.writer.put(messages), timeout_s)
        self._wait(self.writer.appended_offset, timeout_s)
        return results

    def put_batch(
        self, records: bytes | bytearray | memoryview, *, timeout_s: float | None = None
    ) -> BatchResult:
        """Store encoded records, all or none. Raises InvalidBatch; otherwise as ``put``."""
        result = self._retry_busy(lambda: self.writer.append_batch(records), timeout_s)
        self._wait(result.end_commit_offset, timeout_s)
        return result

    def _retry_busy(self, append: Callable[[], Appended], timeout_s: float | None) -> Appended:
        """Append, waiting for full buffers to drain for as long as the caller would."""
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            try:
                return append()
            except StoreBusy as busy:
                delay_s = busy.retry_delay_ms / 1000
                if deadline is not None and self._clock.monotonic() + delay_s > deadline:
                    raise
                self._pause.wait(delay_s)

    def _wait(self, end_commit_offset: int, timeout_s: float | None) -> None:
        if not self.writer.wait_acknowledged(end_commit_offset, timeout_s):
            raise StoreBusy("stored, but not yet flushed when time was up", retry_delay_ms=1_000)
        self._put_offset = max(self._put_offset, end_commit_offset)

    # ---- messages out

    def _see_own_puts(self) -> None:
        if self._writer is not None and self._put_offset:
            self._writer.wait_dispatched(self._put_offset, VISIBLE_TIMEOUT_S)

    def pull(
        self,
        topic: str,
        queue_id: int,
        *,
        queue_offset: int,
        max_messages: int = 32,
        max_bytes: int = 1 << 20,
        tag_expression: str = "",
    ) -> PullResult:
        """Return messages of one queue from ``queue_offset`` on; a status says why there are none.

        Raises TopicNotFound.
        """
        self._see_own_puts()
        return self._reader.pull(
            topic,
            queue_id,
            queue_offset=queue_offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_expression=tag_expression,
        )

    def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        begin_timestamp_ms: int = 0,
        end_timestamp_ms: int | None = None,
        max_messages: int = 32,
        page_token: str = "",
    ) -> KeyQueryResult:
        """Return the newest messages of a topic that carry a key, own puts included."""
        if self._indexer is not None and self._put_offset:
            self._see_own_puts()
            self._indexer.wait_indexed(self._put_offset, VISIBLE_TIMEOUT_S)
        return self._reader.query_by_key(
            topic,
            key,
            unique=unique,
            begin_timestamp_ms=begin_timestamp_ms,
            end_timestamp_ms=end_timestamp_ms,
            max_messages=max_messages,
            page_token=page_token,
        )

    def message(self, commit_offset: int) -> memoryview:
        """Return the record at a commit offset. Raises RecordNotFound, DamagedRecord."""
        self._see_own_puts()
        return self._reader.message(commit_offset)

    def message_by_id(self, message_id: str) -> memoryview:
        """Return the record that an offset message id names."""
        self._see_own_puts()
        return self._reader.message_by_id(message_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be pulled."""
        return self._reader.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next message will get."""
        self._see_own_puts()
        return self._reader.max_offset(topic, queue_id)

    def offset_by_time(
        self,
        topic: str,
        queue_id: int,
        *,
        timestamp_ms: int,
        boundary: Literal["lower", "upper"] = "lower",
    ) -> int:
        """Return the queue offset of the first message at or after a time, or the last before it."""
        self._see_own_puts()
        return self._reader.offset_by_time(
            topic, queue_id, timestamp_ms=timestamp_ms, boundary=boundary
        )

    # ---- topics and state

    def create_topic(
        self, name: str, queue_count: int, *, attributes: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """Create a topic; durable on return. Raises TopicExists, InvalidMessage."""
        return self.writer.create_topic(name, queue_count, attributes=attributes)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its queues; its records stay in the log."""
        self.writer.delete_topic(name)

    def list_topics(self) -> list[TopicConfig]:
        """Return all topics by name."""
        return list(self._reader.topics) if self._writer is None else self._writer.list_topics()

    def status(self) -> WriterStatus:
        """Return how far the writer is, and whether it can write."""
        return self.writer.status()
