"""The writing half of a store: the one process that appends.

Threads: callers append under the appender's lock; the flush thread (and with the pool the commit thread)
moves positions; dispatch builds queues up to the confirmed offset; the checkpointer raises the durable
checkpoint; upkeep completes staged commits that were stopped. What an acknowledgement means is said by
one table, ``storage.log.acknowledgement``:

=====  =====  ==============================================================
mode   pool   acknowledged when the record is
=====  =====  ==============================================================
sync   any    on the device
async  no     in the page cache: survives the process, not the machine
async  yes    in the pool's shared memory: the same, replayed at the next start
=====  =====  ==============================================================
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from storage.clock import Clock, SystemClock
from storage.config import StoreConfig
from storage.engine.appender import Appender
from storage.engine.counts import StoreCounts
from storage.engine.dead_letters import AppendedDeadLetters, DeadLetterAppender
from storage.engine.engine import Engine
from storage.engine.opening import open_engine
from storage.engine.producers import ProducerWorker
from storage.engine.topic_changes import TopicChanges
from storage.errors import StoreError, StoreFailed
from storage.files.filesystem import FileSystem
from storage.log.message_slices import MessageSlices
from storage.message import BatchResult, Message, ProducerSequence, PutResult
from storage.revive.worker import ReviveWorker
from storage.scrub.worker import ScrubStatus
from storage.staged.staged_commits import UPKEEP_INTERVAL_S, StagedCommits
from storage.tables.topics import NewTopic
from storage.timers.worker import TimerWorker
from storage.transactions.checks import TransactionChecks
from storage.transactions.transactions import Transactions
from storage.workers import FunctionWorker

if TYPE_CHECKING:
    from storage.log.followers import Followers
    from storage.recovery.recover import Recovered
    from storage.tables.topic_table import Created
    from storage.tables.topics import TopicConfig
    from storage.timers.delivery import TimerStatus
    from storage.transactions.values import HalfStatus
    from storage.workers import Workers

LOCAL_HOST: Final = "127.0.0.1:0"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterStatus:
    """How far the writer is. All offsets are ends; ``problem`` says why it is not writable.

    ``followers`` has from which offset on each follower still needs the log; what is before
    ``needed_commit_offset`` none needs, from there on ``held_by``. ``timers`` and ``halves`` are not shown yet.
    """

    min_commit_offset: int
    appended_offset: int
    committed_offset: int
    flushed_offset: int
    dispatched_offset: int
    needed_commit_offset: int
    held_by: str
    followers: Mapping[str, int]
    writable: bool
    problem: str
    flush_mode: str
    transient_pool: bool
    scrub: ScrubStatus
    timers: TimerStatus
    halves: HalfStatus


class StoreWriter:
    """Appends to one store directory. All methods are safe to call from several threads."""

    def __init__(self, engine: Engine, clock: Clock, *, workers: Workers | None = None) -> None:
        self._engine = engine
        self._config = engine.config
        self._appender = Appender(engine, clock)
        self._producers = ProducerWorker(engine, self._appender, clock, workers=workers)
        self._topics = TopicChanges(engine, self._appender, clock)
        self._dead_letters = DeadLetterAppender(engine, self._appender, self._topics)
        self.timers = TimerWorker(engine, self._appender, self._topics, clock, workers=workers)
        self.staged = StagedCommits(engine, self._appender, self.timers.schedule.refuse, clock)
        self._upkeep = FunctionWorker(
            "staged", self.staged.keep_up, has_work=lambda: False, idle_s=lambda: UPKEEP_INTERVAL_S,
            workers=workers,
        )  # fmt: skip
        parts = engine, self._appender, self._topics, clock
        self.transactions = Transactions(*parts)
        self.transaction_checks = TransactionChecks(self.transactions, workers=workers)
        self.revive = ReviveWorker(*parts, self.timers.is_done, workers=workers)
        engine.followers.register("staged", self.staged.needed_offset)
        self.retention = engine.retention
        self.counts = StoreCounts(engine, self._appender)

    @classmethod
    def open(
        cls,
        directory: Path | str,
        config: StoreConfig | None = None,
        *,
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
        waits_for_files: bool = True,
        workers: Workers | None = None,
        compares_all: bool = False,
    ) -> StoreWriter:
        """Open a store for writing, creating it in an empty directory, after its recovery.

        An append that needs a log file which is not at hand waits for it, up to 0.2 s or for as
        long as making it takes; without ``waits_for_files``, as an event loop needs it, it raises
        StoreBusy and the file is made meanwhile. ``workers`` makes the steps of all background work;
        without one each part has a thread. With ``compares_all`` recovery reads the whole log and
        compares every queue with it, whatever the checkpoint says.

        Raises StoreLocked, NotAStore, UnsupportedFormat, StoreFull.
        """
        clock = clock or SystemClock()
        engine = open_engine(
            Path(directory), config or StoreConfig(), filesystem or FileSystem(), clock,
            waits_for_files=waits_for_files, workers=workers, compares_all=compares_all,
        )  # fmt: skip
        writer = cls(engine, clock, workers=workers)
        try:
            writer._producers.start()  # before anything is appended
            writer.staged.recover()
            writer._upkeep.start()
            writer.transaction_checks.start()
            if writer.revive.has_queues:
                writer.revive.start()
            writer.timers.start()
            writer.retention.start()  # now that everybody who needs old records has said so
        except BaseException:
            writer.close()
            raise
        return writer

    def __enter__(self) -> StoreWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- appending

    def put(
        self, messages: Sequence[Message], *, born_host: str = LOCAL_HOST,
        producer: ProducerSequence | None = None,
    ) -> list[PutResult]:  # fmt: skip
        """Append messages, all or none, and return where each is; does not wait for durability.

        A request of a ``producer`` that is stored is not stored again: where it is is returned; raises OutcomeForgotten
        if nobody knows. Raises InvalidMessage, TopicNotFound, QueueNotFound, StoreBusy, StoreFull, StoreFailed.
        """
        return self._appender.put(messages, born_host, producer)

    def message_slices(self, size_bytes: int) -> MessageSlices:
        """Return a buffer of ``size_bytes`` in which a message is given to ``put_slices``."""
        return self._appender.message_slices(size_bytes)

    def put_slices(self, message: MessageSlices, *, born_host: str) -> int | None:
        """Append the message whose fields lie in a buffer; does not wait for durability.

        Returns the record's end in the log, and its place, times and unique key in the message's
        fields. None, with nothing done, unless the message is plain: ``put`` decides then.
        Raises StoreBusy, StoreFull, StoreFailed.
        """
        return self._appender.put_slices(message, born_host)

    def is_new(self, producer: ProducerSequence) -> bool:
        """Whether nothing is known of a request, so that nothing is read from the disk for its answer."""
        return self._appender.repeats.is_new(producer)

    def append_batch(
        self, records: bytes | bytearray | memoryview, *, producer: ProducerSequence | None = None
    ) -> BatchResult:
        """Append records that a client encoded, all or none; does not wait for durability.

        ``producer`` is as in ``put``. Raises InvalidBatch with the index of the first bad record, TopicNotFound,
        QueueNotFound, InvalidMessage when the batch is longer than a file, StoreBusy, StoreFull, StoreFailed.
        """
        return cast("BatchResult", self._appender.append_batch(records, producer))

    def append_batch_of_few(
        self, records: bytes | bytearray | memoryview, *, queues_max: int,
        producer: ProducerSequence | None = None,
    ) -> BatchResult | None:  # fmt: skip
        """Do what ``append_batch`` does; None, with nothing done, if it may take long: for many queues, or stored already."""
        return self._appender.append_batch(records, producer, queues_max=queues_max)

    def append_together(
        self, batches: Sequence[memoryview], *, queues_max: int
    ) -> list[BatchResult] | None:
        """Append batches of no producer, in their order, as one: they share what an append costs.

        None, with nothing appended, where one would be refused or delayed, or has no record or several queues:
        each can be appended alone. Does not wait for durability.
        """
        return self._appender.append_together(batches, queues_max=queues_max)

    def append_dead_letters(
        self, group: str, commit_offsets: Sequence[int], reconsume_times: Sequence[int]
    ) -> AppendedDeadLetters:
        """Append copies of records to a group's dead letter topic, made if absent; does not wait for durability.

        ``storage.engine.dead_letters`` has what a copy is. Raises InvalidMessage, StoreBusy, StoreFull,
        StoreFailed, and then a part may have been appended.
        """
        return self._dead_letters.append(group, commit_offsets, reconsume_times)

    # ---- acknowledging

    @property
    def appended_offset(self) -> int:
        """End of what was appended."""
        return self._engine.log.appended_offset

    @property
    def acknowledged_offset(self) -> int:
        """End of what an acknowledgement may rely on (see the module)."""
        return self._engine.acknowledgement.acknowledged_offset

    def wait_acknowledged(self, end_commit_offset: int, timeout_s: float | None = None) -> bool:
        """Wait until everything before the offset may be acknowledged; False when time is up.

        Raises StoreFailed if it never will be.
        """
        wait = self._engine.acknowledgement.wait
        return self.acknowledged_offset >= end_commit_offset or wait(end_commit_offset, timeout_s)

    def add_ack_listener(self, callback: Callable[[int], None]) -> None:
        """Call back, from any thread, each time the offset rises or never will again; in some modes for the latter only."""
        self._engine.acknowledgement.add_listener(callback)
        self._engine.add_failure_listener(lambda _: callback(self.acknowledged_offset))

    def wait_dispatched(self, end_commit_offset: int, timeout_s: float) -> bool:
        """Wait until consumers can see everything before the offset; False when time is up."""
        return self._engine.dispatch.wait(end_commit_offset, timeout_s)

    def dispatch_by(self, caller: Callable[[], None]) -> None:
        """Have ``caller`` called after each append that may be shown at once, instead of waking dispatch.

        It runs under the append's lock and has ``dispatch_few`` called soon, by a thread of its own choice.
        """
        self._engine.wake_dispatch = caller

    def dispatch_few(self, bytes_max: int) -> None:
        """Show consumers in this thread what was appended; wake dispatch for more than ``bytes_max``."""
        dispatch = self._engine.dispatch
        if not dispatch.dispatch_few(bytes_max):
            dispatch.wake()

    def check_place(self) -> None:
        """End writing if the store's directory was renamed or removed: nobody finds what is written then."""
        try:
            if not self._appender.is_closed:
                self._engine.filesystem.status(self._engine.paths.root)
        except OSError as error:
            if error.errno == errno.ESTALE:
                self._engine.fail(StoreFailed(str(error)))

    def failure(self) -> StoreError | None:
        """Return why nothing more will be acknowledged, if that is so."""
        return self._engine.failure

    @property
    def writable(self) -> bool:
        """Whether anything can be appended; for event loops: nothing is read or waited for."""
        return self._engine.failure is None and not self._appender.is_closed

    # ---- topics

    def create_topic(
        self, name: str, queue_count: int, *, attributes: Mapping[str, str] | None = None
    ) -> TopicConfig:
        """Create a topic; durable on return. Raises TopicExists, InvalidMessage."""
        new = NewTopic(name=name, queue_count=queue_count, attributes=attributes or {})
        (created,) = self._topics.create([[new]])
        if isinstance(created, StoreError):
            raise created
        return created[0]

    def create_topics(self, groups: Sequence[Sequence[NewTopic]]) -> list[Created]:
        """Create topics with one change of the table; durable on return.

        Returns for each group its topics, or the TopicExists or InvalidMessage for which none of it is
        created.
        """
        return self._topics.create(groups)

    def update_topic(
        self,
        name: str,
        *,
        queue_count: int | None = None,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str] | None = None,
        force: bool = False,
    ) -> TopicConfig:
        """Change a topic; durable on return. ``queue_count`` stands for each count that is not given.

        Queues out of use keep their messages and go on where they were when they return. Raises
        QueuesInUse, but with ``force``, where read queues go that a group has not read to the end.
        """
        return self._topics.update(
            name,
            read_queue_count=queue_count if read_queue_count is None else read_queue_count,
            write_queue_count=queue_count if write_queue_count is None else write_queue_count,
            perm=perm,
            attributes=attributes or {},
            force=force,
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its queues; its records stay in the log. Durable on return."""
        self._topics.delete(name)

    def list_topics(self) -> list[TopicConfig]:
        """Return all topics by name."""
        return list(self._engine.topics)

    def describe_topic(self, name: str) -> tuple[TopicConfig, list[tuple[int, int]]]:
        """Return a topic and, for each of its queues, the first and the next queue offset."""
        topic = self._engine.topics.get(name)
        offsets = self._engine.queues.ranges(name, topic.queue_count, self._engine.log.min_offset)
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

    @property
    def followers(self) -> Followers:
        """Who follows the log, and from where on each needs it; others may register."""
        return self._engine.followers

    def status(self) -> WriterStatus:
        """Return how far the writer is, and whether it can write."""
        log = self._engine.log
        followers = self.followers.offsets()  # first: they only grow
        held_by = min(followers, key=lambda name: followers[name], default="")
        ended = "the store is closed" if self._appender.is_closed else self.failure()
        parts = (self._engine.dispatch, self.transaction_checks, self.revive, self._producers)
        problems = (ended, *(part.problem for part in parts))
        return WriterStatus(
            min_commit_offset=log.min_offset,
            appended_offset=log.appended_offset,
            committed_offset=log.committed_offset,
            flushed_offset=log.flushed_offset,
            dispatched_offset=self._engine.dispatch.position,
            needed_commit_offset=followers.get(held_by, log.appended_offset),
            held_by=held_by,
            followers=followers,
            writable=self.writable,
            problem=str(next(filter(None, problems), "")),
            flush_mode=self._config.flush_mode,
            transient_pool=self._config.transient_pool,
            scrub=self._engine.scrub.status,
            timers=self.timers.status(),
            halves=self.transactions.status(),
        )

    def close(self) -> None:
        """Drain, make everything durable, and mark the stop as orderly. Safe to call twice.

        After a failure the stop is not marked, so that the next start verifies.
        """
        if not self._appender.is_closed:
            self._upkeep.end()
            self.timers.end()
            self.staged.close()
            self._upkeep.stop()
            self.transaction_checks.close()
            self.revive.close()
            self.timers.close()
        with self._topics.lock, self._appender.lock:
            if self._appender.is_closed:
                return
            self._appender.close()
        self._producers.close()
        self._engine.close()
