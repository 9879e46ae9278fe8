"""What transactions need of the log: half messages read, and copies and op records appended in one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import prepared_copies
from storage.format.names import HALF_REMOVAL_TOPIC, HALF_TOPIC
from storage.format.record import Record, decode_record
from storage.kernels.columns import STOP_END, stop_text
from storage.transactions.half_records import HalfEnd, removal_records

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.kernels.columns import ByteArray, Rows
    from storage.queues.consume_queue import ConsumeQueue

_NO_RECORD: Final = "there is no record of that commit offset any more"


class TransactionLog:
    """Reads half messages and appends what ends them; safe to call from several threads."""

    def __init__(
        self, engine: Engine, appender: Appender, topics: TopicChanges, clock: Clock
    ) -> None:
        self.engine = engine
        self.appender = appender
        self.clock = clock
        self.topics_lock = topics.lock  # while it is held no topic comes or goes
        self._topics = topics

    def ensure_topics(self, *names: str) -> None:
        """Make topics of a broker's own that are not there, of one queue each; durable on return."""
        self._topics.ensure(dict.fromkeys(names, 1))

    def has_topic(self, name: str, commit_offset: int) -> bool:
        """Whether a topic is there to which a half message at a commit offset belongs."""
        return name in self.engine.topics and commit_offset >= self._topics.deleted_at(name)

    def half_queue(self) -> ConsumeQueue | None:
        """Return the queue of half messages, if there is one."""
        return self.engine.queues.known(HALF_TOPIC, 0)

    def removal_queue(self) -> ConsumeQueue | None:
        """Return the queue of op records, if there is one."""
        return self.engine.queues.known(HALF_REMOVAL_TOPIC, 0)

    def read(self, commit_offset: int) -> tuple[ByteArray | None, str]:
        """Return the bytes of the record at a commit offset, or None and what is wrong with it."""
        record, stop = self.engine.record_at(commit_offset)
        if record is None or stop != STOP_END:
            return None, _NO_RECORD if record is None else stop_text(stop)
        return record, ""

    def read_decoded(self, commit_offset: int) -> Record | None:
        """Return the record at a commit offset; None if it is not whole."""
        record, _ = self.read(commit_offset)
        return None if record is None else decode_record(record.tobytes())

    def append(
        self, copies: ByteArray, count: int, removed: Sequence[int] = (), end: HalfEnd | None = None
    ) -> tuple[Rows, int]:
        """Append ``count`` copies and, after them, op records for the ``removed`` halves, as one batch.

        Returns the rows of the placed copies, and their store time. Raises TopicNotFound, InvalidMessage,
        StoreBusy, StoreFull, StoreFailed, and then nothing was stored.
        """
        if end is not None and removed:
            records = list(
                removal_records(
                    removed, end, now_ms=self.clock.now_ms(), host=self.engine.config.store_host
                )
            )
            added = np.frombuffer(b"".join(records), np.uint8)
            copies = np.concatenate((copies, added)) if copies.size else added
            all_count = count + len(records)
        else:
            all_count = count
        prepared = prepared_copies(self.engine, copies, all_count)
        prepared = prepared._replace(placed_rows=np.empty_like(prepared.rows))
        _, store_timestamp_ms, _ = self.appender.append(prepared, decided=True, fills_rows=True)
        return prepared.placed_rows[:count], store_timestamp_ms
