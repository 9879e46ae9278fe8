"""A writer's engine in memory, for tests of the service around it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from storage.errors import StoreError
from storage.log.message_slices import MessageSlices
from storage.message import BatchResult, Message, PutResult, QueueRange


class FakeWriterStore:
    """Stores what it is given; ``error`` is raised by the next calls, ``acknowledge`` acks."""

    def __init__(self, *, acknowledges_itself: bool = True) -> None:
        self.stored: list[Any] = []
        self.error: Exception | None = None
        self.refused_count = 0
        self.appended_offset = 0
        self.acknowledged_offset = 0
        self.staged: Any = None  # with those of a real store only
        self.acknowledges_itself = acknowledges_itself
        self.takes_batches_at_once = True
        self.joined_counts: list[int] = []  # of batches that were appended together
        self._failure: StoreError | None = None
        self._listeners: list[Callable[[int], None]] = []
        self.lock = threading.Lock()

    def add_ack_listener(self, callback: Callable[[int], None]) -> None:
        self._listeners.append(callback)

    def failure(self) -> StoreError | None:
        return self._failure

    def fail(self, failure: StoreError) -> None:
        self._failure = failure
        for listener in self._listeners:
            listener(self.acknowledged_offset)

    def acknowledge(self, offset: int | None = None) -> None:
        self.acknowledged_offset = self.appended_offset if offset is None else offset
        for listener in self._listeners:
            listener(self.acknowledged_offset)

    def _append(self, item: Any, size: int) -> int:
        if self.error is not None:
            self.refused_count += 1
            raise self.error
        begin = self.appended_offset
        self.stored.append(item)
        self.appended_offset += size
        if self.acknowledges_itself:
            self.acknowledge()
        return begin

    def put(self, messages: Sequence[Message], *, born_host: str, producer: Any) -> list[PutResult]:
        return [
            PutResult(
                topic=m.topic,
                queue_id=m.queue_id or 0,
                queue_offset=len(self.stored),
                commit_offset=self._append(m, 100),
                message_id="ID",
                unique_key=m.unique_key,
                store_timestamp_ms=1,
            )
            for m in messages
        ]

    def is_new(self, producer: Any) -> bool:
        return not producer.age_ms

    def message_slices(self, size_bytes: int) -> MessageSlices:
        return MessageSlices(size_bytes, store_host=bytes(8), unique_head="0" * 12)

    def put_slices(self, message: MessageSlices, *, born_host: str) -> int | None:
        return None

    def append_batch(self, records: memoryview, *, producer: Any) -> BatchResult:
        begin = self._append(bytes(records), len(records))
        return BatchResult(
            commit_offset=begin,
            end_commit_offset=self.appended_offset,
            record_count=1,
            store_timestamp_ms=1,
            ranges=(QueueRange(topic="t", queue_id=0, first_queue_offset=begin, count=1),),
        )

    def append_together(
        self, batches: Sequence[memoryview], *, queues_max: int
    ) -> list[BatchResult] | None:
        if self.error is not None:
            return None
        self.joined_counts.append(len(batches))
        return [self.append_batch(records, producer=None) for records in batches]

    def append_batch_of_few(
        self, records: memoryview, *, queues_max: int, producer: Any
    ) -> BatchResult | None:
        return self.append_batch(records, producer=producer) if self.takes_batches_at_once else None

    def create_topic(self, name: str, queue_count: int, *, attributes: Mapping[str, str]) -> Any:
        if self.error is not None:
            raise self.error
        return SimpleNamespace(
            name=name,
            read_queue_count=queue_count,
            write_queue_count=queue_count,
            perm=6,
            attributes=attributes,
        )

    def list_topics(self) -> list[Any]:
        return []

    def status(self) -> Any:
        return SimpleNamespace(
            min_commit_offset=0,
            appended_offset=self.appended_offset,
            committed_offset=self.appended_offset,
            flushed_offset=self.acknowledged_offset,
            dispatched_offset=0,
            writable=self._failure is None,
            problem=str(self._failure or ""),
            flush_mode="sync",
            transient_pool=False,
        )
