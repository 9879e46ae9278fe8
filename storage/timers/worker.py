"""The worker of delayed messages: it takes up what was parked, delivers what is due, and saves how far it is.

Steps, and what a stop after each leaves:

1. Records of the timer topic that were dispatched become pending rows. Stopped: they are read again.
   Before anything that is due at a time is delivered, all that was appended before that time has: a recall
   among it counts, and what is due together comes in the order of its times.
2. Due records are appended to their topics, as one batch. Stopped within or after it: the start finds the
   copies in the log after the saved progress, and delivers those records no more.
3. Progress is saved once the log is synced as far as it was when it was noted. Stopped before: the former one
   counts, and more of the log is read. A power cut takes copies only that no progress knows of.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.writer_view import WriterLogView, WriterQueueView
from storage.errors import StoreBusy, StoreError, StoreFull
from storage.format.names import TIMER_TOPIC
from storage.format.properties import TIMER_DEL_UNIQKEY
from storage.format.timer_files import SECOND_MS, out_ms
from storage.kernels.timers import DELIVERY_PAIRS_MAX, DUE_MS, IS_LOST, RECALLS
from storage.log.followers import DurableNeed
from storage.timers.blocks import PendingTimers
from storage.timers.delivery import (
    Delivery,
    DeliveryCounts,
    RolledRecords,
    TimerStatus,
    delivered_since,
    planned,
)
from storage.timers.hand_over import (
    has_broker_timers,
    remove_broker_timers,
    write_broker_timers,
)
from storage.timers.levels import DelayLevels
from storage.timers.progress import HandedOverTimers, TimerProgress, TimerProgressFiles
from storage.timers.recalls import Recalled, Recalls
from storage.timers.schedule import Schedule
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.engine.writer_view import QueueRecords
    from storage.format.timer_files import TimerCheck
    from storage.timers.blocks import Due
    from storage.workers import Workers

ROWS_MAX: Final = 4_096  # taken up or delivered at once
BYTES_MAX: Final = 4 << 20
SLEEP_MAX_S: Final = 1.0  # a clock that was set forward is seen after it
SAVE_INTERVAL_S: Final = 5.0
HANDED_OVER_MAX: Final = 1 << 21  # rows written for a broker; of more it reads the topic again
FULL_RETRY_S: Final = 0.1
DISPATCH_WAIT_S: Final = 0.1
NEVER_MS: Final = -1


class TimerWorker(Worker):
    """Delivers the delayed messages of one store, and has its appender park what is delayed.

    ``status``, ``recall``, ``is_done``, ``counts`` and ``schedule`` are for any thread.
    """

    full_retry_s = FULL_RETRY_S

    def __init__(
        self, engine: Engine, appender: Appender, topics: TopicChanges, clock: Clock, *,
        workers: Workers | None = None,
    ) -> None:  # fmt: skip
        super().__init__("timers", workers=workers)
        self._engine = engine
        self._appender = appender
        self._clock = clock
        self._log = WriterLogView(engine)
        self._timers = WriterQueueView(self._log, TIMER_TOPIC, 0)
        self._delivery = Delivery(engine, appender, topics)
        self._files = TimerProgressFiles(engine.filesystem, engine.paths, engine.states)
        self._pending = PendingTimers()
        self._rolled = RolledRecords(self._pending, self._timers, self._delivery.counts)
        self._next_offset = 0  # of the timer topic: what was not taken up yet
        self._cleared_ms = NEVER_MS  # what was appended before is taken up
        self._expecting = threading.Lock()
        self._expected_offset = 0  # end of the last append of parked records
        self._seen_offset = -1  # how far the log was dispatched at the last look
        # What a step's end needs of the log, and how far it was dispatched at its begin; replaced as one.
        self._need: tuple[int | None, int] = 0, 0
        self._noted: TimerProgress | None = None
        self._changed = False  # since progress was last noted
        self._saved_at = clock.monotonic()
        self._is_loaded = self._is_moving = False
        self._broker: TimerCheck | None = None
        self._bytes_max = min(BYTES_MAX, engine.log.files.file_size // 4)
        self._due_max = ROWS_MAX  # fewer where so many are too long
        self._levels = DelayLevels(engine, self._log, self._delivery, clock, self._bytes_max)
        self.schedule = Schedule(engine, topics, clock)
        self.recall = Recalls(engine, appender, self.schedule, clock).recall
        self.add_failure_listener(engine.fail)
        appender.park_by(self.schedule.park, self.expect)
        engine.on_dispatched = self.dispatched
        engine.followers.register("timers", DurableNeed(self.needed_offset, engine.log))

    # ---- what others ask

    @property
    def counts(self) -> DeliveryCounts:
        """What became of due messages since the start."""
        return self._delivery.counts

    def expect(self, end_commit_offset: int) -> None:
        """Look at the system topics once the log is dispatched as far."""
        with self._expecting:  # callers of several threads
            self._expected_offset = max(self._expected_offset, end_commit_offset)
        self.dispatched()

    def dispatched(self) -> None:
        """The log was dispatched further; cheap where nothing is parked."""
        if self._is_new_dispatched():
            self.wake()

    def _is_new_dispatched(self) -> bool:
        """Return whether parked records were dispatched that no step has looked at."""
        return self._seen_offset < self._expected_offset <= self._engine.dispatch.position

    def is_done(self) -> bool:
        """Return whether everything that is due by now has been delivered."""
        # In this order: a step that has taken what is due has no work, and is moving.
        return not self.has_work() and not self._is_moving

    def status(self, within_ms: Sequence[int] = ()) -> TimerStatus:
        """Return how many messages wait, and how many are due within each of the times, as of the last step."""
        now_ms, due_ms = self._clock.now_ms(), self._next_due_ms()
        due_counts = self._pending.counts(now_ms + 1 + np.array(within_ms, np.int64)).tolist()
        late_ms = max(now_ms - (due_ms or now_ms), 0)
        count = len(self._pending) + self._levels.pending_count()
        return TimerStatus(count, due_ms, late_ms, due_counts, self.counts)

    def needed_offset(self) -> int | None:
        """Return from which commit offset on pending records need the log; None: nothing is pending.

        It is as of the end of a step, for those who delete what is before it; no file is read for it.
        Until it is known what is pending, all of the log is needed.
        """
        need, seen_offset = self._need
        if self._expected_offset > seen_offset:  # parked since
            return seen_offset if need is None else min(need, seen_offset)
        return need

    def _pending_from(self) -> int | None:
        queues = self._engine.queues
        first = self._pending.first_queue_offset()
        first = self._next_offset if first is None else first
        places = [(TIMER_TOPIC, 0, first), *self._levels.places()]
        offsets = [
            queue.unit(offset).commit_offset
            for topic, queue_id, offset in places
            if (queue := queues.known(topic, queue_id)) is not None and offset < queue.next_offset
        ]
        return min(offsets, default=None)

    # ---- steps

    def has_work(self) -> bool:
        """Return whether records are to be taken up, or are due."""
        if not self._is_loaded or self._is_new_dispatched():
            return True
        due_ms = self._next_due_ms()
        return due_ms is not None and due_ms <= self._clock.now_ms()

    def idle_s(self) -> float | None:
        """Return how long until the next record is due, or progress is to be saved."""
        left_s = SLEEP_MAX_S
        due_ms = self._next_due_ms()
        if due_ms is not None:
            left_s = min(max(due_ms - self._clock.now_ms(), 0) / 1_000, left_s)
        elif not self._changed and self._noted is None:
            return None
        return left_s

    def _next_due_ms(self) -> int | None:
        dues = self._pending.next_due_ms(), self._levels.next_due_ms()
        return min((each for each in dues if each is not None), default=None)

    def work(self) -> float | None:
        """Make one step: take up, deliver, save."""
        self._is_moving = True  # also after a step that failed: what it took is not delivered
        seen = self._log.look()
        if not self._is_loaded:
            self._load()
        moved = self._take_up()
        moved |= self._deliver_timers()
        moved |= self._levels.deliver()
        if not moved:
            self._seen_offset = seen
        self._changed |= moved
        with suppress(OSError, StoreBusy):  # then more than is pending stays until the next step
            self._need = self._pending_from(), seen
        self._save()
        self._is_moving = moved
        return 0.0 if moved else None

    def _load(self) -> None:
        """Find what was pending when the store was last written to, by us or by a broker."""
        now_ms = self._clock.now_ms()
        progress, self._broker = self._files.load(now_ms, self._engine, self._log)
        self._pending.blocks = list(progress.blocks)
        self._next_offset = progress.queue_offset
        self._levels.resume(progress.levels)
        self._delivery.recalled = Recalled(progress.recalled)
        self._delivery.seen = delivered_since(progress.commit_offset, self._engine)
        if has_broker_timers(self._engine.filesystem, self._engine.paths.root):
            # They would be wrong as soon as anything is delivered; without them our progress counts.
            self._write(self._note(progress.commit_offset), None)
            remove_broker_timers(self._engine.filesystem, self._engine.paths.root)
        self._is_loaded = True

    def _take_up(self) -> bool:
        """Make pending rows of the next records of the timer topic; return whether there were any."""
        if self._engine.queues.known(TIMER_TOPIC, 0) is None:
            return False
        begin, end = self._timers.bounds()
        self._next_offset = max(self._next_offset, begin)
        if self._next_offset >= end:
            self._rolled.drop_repeated()
            return False
        wanted = np.arange(self._next_offset, min(end, self._next_offset + ROWS_MAX))
        records = self._timers.records(wanted, bytes_max=self._bytes_max, room=DELIVERY_PAIRS_MAX)
        said = planned(records, now_ms=0, is_timer=True).said
        dues_ms = said[:, DUE_MS].copy()
        recalls = said[:, RECALLS] != 0
        dues_ms[recalls] -= SECOND_MS  # a recall comes before what it recalls
        kept = said[:, IS_LOST] == 0
        broker = self._broker
        if broker is not None:
            kept &= (out_ms(said[:, DUE_MS]) >= broker.read_ms) | (
                records.queue_offsets >= broker.queue_offset
            )
        self._pending.add(dues_ms[kept], records.queue_offsets[kept])
        self._rolled.take_up(said[kept])
        self.counts.damaged += len(records.damaged) + int((said[:, IS_LOST] != 0).sum())
        self._next_offset += records.looked_at
        return True

    def _deliver_timers(self) -> bool:
        due_ms, now_ms = self._pending.next_due_ms(), self._clock.now_ms()
        if due_ms is None or due_ms > now_ms:
            return False
        if not due_ms <= self._cleared_ms <= now_ms and not self._clear():
            return False
        now_ms = self._cleared_ms
        due, records = self._due(now_ms)
        if not records.looked_at:
            return False
        by_offset = np.argsort(due.queue_offsets, kind="stable")
        places = by_offset[np.searchsorted(due.queue_offsets[by_offset], records.queue_offsets)]
        order = np.argsort(places, kind="stable")
        early, dues_ms = self._delivery.deliver(records, order, now_ms=now_ms, is_timer=True)
        self._pending.take(due)
        self._pending.add(dues_ms, records.queue_offsets[order[early]])
        self.counts.damaged += len(records.damaged)
        self._delivery.recalled.forget(self._pending.next_due_ms())
        return True

    def _clear(self) -> bool:
        """Take up all that was appended before now, so that what is due by now may be delivered.

        False where it is not dispatched yet.
        """
        with (
            self._appender.lock
        ):  # whatever has a store time before this one has its place in the log
            now_ms, end_offset = self._clock.now_ms(), self._engine.log.appended_offset
        if not self._engine.dispatch.wait(end_offset, DISPATCH_WAIT_S):
            self._appender.check_open()  # else it never will be
            return False
        self._log.look()
        while self._take_up():
            pass
        self._cleared_ms = now_ms
        return True

    def _due(self, now_ms: int) -> tuple[Due, QueueRecords]:
        """Return the first rows by time of those that are due, as many as there is room for, with their records."""
        count = self._due_max
        while True:
            due = self._pending.due(now_ms, count)
            wanted = np.sort(due.queue_offsets)
            records = self._timers.records(
                wanted, bytes_max=self._bytes_max, room=DELIVERY_PAIRS_MAX
            )
            if records.looked_at == len(wanted) or len(wanted) == 1:
                self._due_max = min(2 * count, ROWS_MAX)
                return due, records
            count = max(min(records.looked_at, len(wanted) // 2), 1)

    # ---- progress

    def _save(self) -> None:
        """Note progress now and then, and write it once the log is synced as far."""
        now = self._clock.monotonic()
        if self._noted is None and self._changed and now - self._saved_at >= SAVE_INTERVAL_S:
            self._noted = self._note()
            self._changed = False
        noted = self._noted
        if noted is None or self._engine.log.flushed_offset < noted.commit_offset:
            return
        self._write(noted, None)
        self._noted, self._saved_at = None, now

    def _write(self, noted: TimerProgress, handed_over: HandedOverTimers | None) -> None:
        self._files.save(noted, now_ms=self._clock.now_ms(), handed_over=handed_over)

    def _note(self, commit_offset: int | None = None) -> TimerProgress:
        """Return the progress as of now. Nobody else appends copies, so the log has none that it lacks."""
        self._rolled.drop_repeated()
        now_ms = self._clock.now_ms()
        due_ms = self._pending.next_due_ms()
        before_ms = now_ms if due_ms is None else min(due_ms - 1, now_ms)
        blocks = list(self._pending.blocks)
        return TimerProgress(
            commit_offset=self._engine.log.appended_offset
            if commit_offset is None
            else commit_offset,
            queue_offset=self._next_offset,
            levels=dict(self._levels.offsets),
            blocks=blocks,
            heads=[block.head for block in blocks],
            recalled=dict(self._delivery.recalled),
            read_ms=before_ms // SECOND_MS * SECOND_MS,
        )

    def finish(self) -> None:
        """Save how far it is; of an engine that still runs."""
        if not self._is_loaded:
            return
        engine = self._engine
        engine.settle()
        with suppress(StoreBusy, StoreFull):  # what is not delivered stays pending
            self.work()
        while self._take_up():
            pass
        noted = self._note()
        handed_over = None
        try:
            handed_over = self._hand_over(noted)
        except StoreFull:  # a broker reads the topic again
            remove_broker_timers(engine.filesystem, engine.paths.root)
        engine.settle()
        self._write(noted, handed_over)

    def _hand_over(self, noted: TimerProgress) -> HandedOverTimers | None:
        """Write what a broker needs, which counts all of the topic as read.

        None if that is not so, or too much, or a recall was met whose message is not due: then a broker reads the
        topic again, with that recall.
        """
        engine = self._engine
        queue = engine.queues.known(TIMER_TOPIC, 0)
        if queue is None or not queue.next_offset or self._next_offset != queue.next_offset:
            return None
        if len(self._pending) > HANDED_OVER_MAX or self._delivery.recalled:
            return None
        end = write_broker_timers(
            engine.filesystem, engine.paths.root, noted.blocks, queue,
            is_recall=self._is_recall, read_ms=noted.read_ms, now_ms=self._clock.now_ms(),
            file_size=self._files.log_file_size,
        )  # fmt: skip
        return HandedOverTimers(end, queue.next_offset)

    def _is_recall(self, commit_offset: int, size: int) -> bool:
        """Whether a record, as it lies in the log, recalls another one."""
        data = self._log.bytes_at(commit_offset, size)
        return data is not None and f"{TIMER_DEL_UNIQKEY}\x01".encode() in bytes(data)

    def close(self) -> None:
        """Save how far it is, and let go of files."""
        with suppress(StoreError):
            self.stop()
        self._timers.close()
        self._levels.close()
        self._log.close()
