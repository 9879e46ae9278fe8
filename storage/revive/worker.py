"""Hands out again what a broker had handed out: by copies in the retry topic, at the end of a lease.

Each step reads what is new in the revive topics; of a checkpoint whose time is over it appends, in one batch,
a copy of each message that nobody acknowledged, and behind the copies the acknowledgements. Whoever reads the
revive topics again, we or a broker, finds nothing to do for what is acknowledged. A stop may leave the
beginning of a batch, copies without their acknowledgements: these messages come once more. A checkpoint is
settled only when all delayed records that were due before its end are delivered: its acknowledgements are
among them.

The writer's journal has the first queue offset of each revive topic that is not settled, and a broker the
last one that is, as offset of its group CID_RMQ_SYS_REVIVE_GROUP. Both save reading alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.copies import prepared_copies
from storage.engine.system_group import SystemGroup
from storage.engine.writer_view import WriterLogView, WriterQueueView
from storage.errors import StoreBusy, StoreError, StoreFull, TopicNotFound
from storage.format.names import topic_name_problem
from storage.kernels.columns import (
    BODY_LENGTH,
    BODY_POSITION,
    STORE_TIMESTAMP,
    TAG_CODE,
)
from storage.revive.checkpoints import (
    ACK_CODES,
    CHECKPOINT_CODE,
    REVIVE_GROUP,
    REVIVE_TOPIC_PREFIX,
    Checkpoint,
    CheckpointKey,
    decode_ack,
    decode_checkpoint,
)
from storage.revive.copies import retry_copies
from storage.workers import Worker, Workers

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.engine.writer_view import QueueRecords

_LOG: Final = logging.getLogger(__name__)
ROWS_MAX: Final = 2_048  # records read, or messages copied, at once
BYTES_MAX: Final = 4 << 20
LOOK_S: Final = 1.0  # a checkpoint comes a second before its end
TIMERS_WAIT_S: Final = 0.01
DISPATCH_WAIT_S: Final = 1.0
FULL_RETRY_S: Final = 0.1
STATE: Final = "revive"  # in the writer's journal


class _ReviveQueue:
    """One queue of a revive topic, and its checkpoints that are not settled."""

    def __init__(self, queue: WriterQueueView, next_offset: int) -> None:
        self.queue = queue
        self.next_offset = next_offset  # of what was not read yet
        self.open: dict[CheckpointKey, Checkpoint] = {}

    @property
    def settled_offset(self) -> int:
        """The first queue offset that a start has to read."""
        return min((each.place for each in self.open.values()), default=self.next_offset)


class ReviveWorker(Worker):
    """Settles the checkpoints of one store. ``timers_are_done`` says whether all that is due is delivered."""

    full_retry_s = FULL_RETRY_S

    def __init__(
        self, engine: Engine, appender: Appender, topics: TopicChanges, clock: Clock,
        timers_are_done: Callable[[], bool], *, workers: Workers | None = None,
    ) -> None:  # fmt: skip
        super().__init__("revive", workers=workers)
        self._engine = engine
        self._appender = appender
        self._topics = topics
        self._clock = clock
        self._timers_are_done = timers_are_done
        self._log = WriterLogView(engine)
        self._group = SystemGroup(engine.filesystem, engine.paths.config, clock, REVIVE_GROUP)
        self._queues: dict[tuple[str, int], _ReviveQueue] = {}
        self._sources: dict[tuple[str, int], WriterQueueView] = {}
        self._kept = {
            (topic, queue_id): offset
            for topic, queue_id, offset in engine.states.document(STATE) or ()
        }
        if engine.broker_ran:
            self._take_over()
        self._bytes_max = min(BYTES_MAX, engine.log.files.file_size // 8)

    def _take_over(self) -> None:
        """Go on where a broker was, if that is further on, and keep it: the next start does not ask a broker."""
        for topic, offsets in self._group.offsets().items():
            for queue_id, settled_offset in offsets.items():
                name = topic, queue_id
                self._kept[name] = max(self._kept.get(name, 0), settled_offset + 1)
        if self._kept:
            with suppress(StoreFull, OSError):  # ``finish`` tries it again
                self._keep(self._kept)

    def _keep(self, progress: dict[tuple[str, int], int]) -> None:
        document = [[*name, offset] for name, offset in sorted(progress.items())]
        self._engine.states.put_document(STATE, document)

    @property
    def has_queues(self) -> bool:
        """Whether a broker has been here: only a broker makes revive topics."""
        return any(topic.name.startswith(REVIVE_TOPIC_PREFIX) for topic in self._engine.topics)

    def start(self) -> None:
        """Begin. To be called before anything is appended: progress may be beyond an end that was lost."""
        for topic in list(self._engine.topics):
            if topic.name.startswith(REVIVE_TOPIC_PREFIX):
                for queue_id in range(topic.queue_count):
                    name = topic.name, queue_id
                    end = self._engine.queues.next_offset(*name)
                    queue, begin = (
                        WriterQueueView(self._log, *name),
                        min(self._kept.get(name, 0), end),
                    )
                    self._queues[name] = _ReviveQueue(queue, begin)
        super().start()

    # ---- steps

    def has_work(self) -> bool:
        """Return whether there are records to read, or a checkpoint whose time is over."""
        ends = self._engine.queues
        if any(each.next_offset < ends.next_offset(*name) for name, each in self._queues.items()):
            return True
        return bool(self._due(self._clock.now_ms())) and self._timers_are_done()

    def idle_s(self) -> float:
        """Return how long until the next checkpoint's end, or the next look."""
        now_ms = self._clock.now_ms()
        ends_ms = [each.end_ms for queue in self._queues.values() for each in queue.open.values()]
        left_s = (min(ends_ms, default=now_ms + 3_600_000) - now_ms) / 1_000
        return min(max(left_s, TIMERS_WAIT_S), LOOK_S)

    def _due(self, now_ms: int) -> list[Checkpoint]:
        return [
            each
            for queue in self._queues.values()
            for each in queue.open.values()
            if each.end_ms <= now_ms
        ]

    def work(self) -> float | None:
        """Make one step: read, settle."""
        now_ms = self._clock.now_ms()
        timers_are_done = self._timers_are_done()
        end_offset = self._engine.log.appended_offset
        if not self._engine.dispatch.wait(end_offset, DISPATCH_WAIT_S):
            return TIMERS_WAIT_S
        self._log.look()
        if self._read():
            return 0.0  # what is not read yet may be acknowledgements
        return 0.0 if timers_are_done and self._settle(now_ms) else None

    def _read(self) -> bool:
        """Take in what is new in the revive topics; return whether there was anything."""
        moved = False
        for each in self._queues.values():
            begin, end = each.queue.bounds()
            each.next_offset = max(each.next_offset, begin)
            if each.next_offset >= end:
                continue
            wanted = np.arange(each.next_offset, min(end, each.next_offset + ROWS_MAX))
            records = each.queue.records(wanted, bytes_max=BYTES_MAX, room=0)
            self._take_in(each, records)
            each.next_offset += records.looked_at
            moved = True
        return moved

    def _take_in(self, queue: _ReviveQueue, records: QueueRecords) -> None:
        offsets = records.queue_offsets.tolist()
        for row, place in zip(records.rows.tolist(), offsets, strict=True):
            begin = row[BODY_POSITION]
            body = records.data[begin : begin + row[BODY_LENGTH]].tobytes()
            if row[TAG_CODE] == CHECKPOINT_CODE:
                name = queue.queue.topic, queue.queue.queue_id
                checkpoint = decode_checkpoint(body, *name, place)
                if checkpoint is not None:
                    queue.open.pop(checkpoint.key, None)
                    queue.open[checkpoint.key] = checkpoint
            elif row[TAG_CODE] in ACK_CODES and (ack := decode_ack(body)) is not None:
                of = queue.open.get(ack[0])
                if of is not None:
                    of.open_offsets.difference_update(ack[1])

    # ---- what nobody acknowledged

    def _settle(self, now_ms: int) -> bool:
        """Copy messages of checkpoints whose time is over, of one queue; return whether there were any."""
        due = self._due(now_ms)
        if not due:
            while self._sources:
                self._sources.popitem()[1].close()
            return False
        first = next((each for each in due if each.open_offsets), None)
        if first is not None:
            source = first.key.topic, first.key.queue_id
            chosen = [
                each
                for each in due
                if (each.key.topic, each.key.queue_id) == source
                and each.retry_topic == first.retry_topic  # what is read bounds what is appended
            ]
            self._copy(source, chosen)
        for each in due:
            if not each.open_offsets:
                del self._queues[each.revive_topic, each.revive_queue].open[each.key]
        return True

    def _copy(self, source: tuple[str, int], due: list[Checkpoint]) -> None:
        """Append copies of messages of one queue and their acknowledgements, as many as go together."""
        for each in due:
            if source[0] not in self._engine.topics or not self._has_retry_topic(each):
                each.open_offsets.clear()
        wanted = sorted({offset for each in due for offset in each.open_offsets})[:ROWS_MAX]
        if not wanted:
            return
        queue = self._sources.get(source)
        if queue is None:
            queue = self._sources[source] = WriterQueueView(self._log, *source)
        records = queue.records(np.array(wanted, np.int64), bytes_max=self._bytes_max, room=0)
        # What lies after the queue's end was lost with the end of the log.
        looked_at = set(wanted[: records.looked_at] or wanted)
        places = {offset: place for place, offset in enumerate(records.queue_offsets.tolist())}
        ended = [(each, offset) for each in due for offset in sorted(each.open_offsets & looked_at)]
        # Of a topic that was created again what was stored after the message was handed out is another one.
        times_ms = records.rows[:, STORE_TIMESTAMP].tolist()
        was_deleted = self._topics.deleted_at(source[0]) > 0
        copied = [
            (each, offset)
            for each, offset in ended
            if offset in places and not (was_deleted and times_ms[places[offset]] > each.key.pop_ms)
        ]
        if copied:
            self._append(records, places, copied)
        for each, offset in ended:
            each.open_offsets.discard(offset)
        for damage in records.damaged:
            _LOG.error(
                "%s queue %d, queue offset %d, does not come again: %s", *source, damage.queue_offset,
                damage.reason,
            )  # fmt: skip

    def _has_retry_topic(self, checkpoint: Checkpoint) -> bool:
        """Return whether there is the topic for what comes again, made if need be."""
        name = checkpoint.retry_topic
        if name in self._engine.topics:
            return True
        if topic_name_problem(name):
            return False
        self._topics.ensure({name: 1})
        return True

    def _append(
        self, records: QueueRecords, places: dict[int, int], ended: list[tuple[Checkpoint, int]]
    ) -> None:
        """Append copies and acknowledgements, all or none. Raises StoreBusy, StoreFull."""
        config = self._engine.config
        # A message that a group was handed twice comes again once.
        once = {(offset, each.retry_topic): each.key.pop_ms for each, offset in ended}
        copies = retry_copies(
            records, [places[offset] for offset, _ in once], [topic for _, topic in once],
            list(once.values()),
        )  # fmt: skip
        now_ms = self._clock.now_ms()
        acks = [
            each.ack_record(
                offset, now_ms=now_ms, host=config.store_host,
                append_crc=config.append_property_crc,
            )
            for each, offset in ended
        ]  # fmt: skip
        prepared = prepared_copies(
            self._engine,
            np.concatenate((copies, np.frombuffer(b"".join(acks), np.uint8))),
            len(once) + len(acks),
        )
        try:
            with self._topics.lock:
                self._appender.append(prepared, decided=True)
        except TopicNotFound as gone:  # since it was looked for: the next step looks again
            raise StoreBusy(str(gone), retry_delay_ms=int(FULL_RETRY_S * 1_000)) from gone

    def finish(self) -> None:
        """Save how far it is, for the next start, ours or a broker's: it saves reading alone."""
        progress = {name: each.settled_offset for name, each in self._queues.items()}
        self._engine.settle()
        with suppress(StoreFull, OSError):
            self._keep(progress)
        self._group.hand_over({name: offset - 1 for name, offset in progress.items() if offset})

    def close(self) -> None:
        """End it, and let go of files."""
        with suppress(StoreError, OSError):
            self.stop()
        for queue in (*self._sources.values(), *(each.queue for each in self._queues.values())):
            queue.close()
        self._log.close()
