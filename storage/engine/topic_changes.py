"""Creating, changing and deleting topics while a store is written to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.errors import (
    InvalidMessage,
    QueuesInUse,
    StoreBusy,
    StoreError,
    StoreFailed,
    StoreFull,
    TopicExists,
)
from storage.format.consume_entry import SCHEDULE_TOPIC
from storage.format.names import GIVEN_UP_TOPIC, HALF_REMOVAL_TOPIC, HALF_TOPIC, TIMER_TOPIC
from storage.tables.consumer_offsets import ConsumerOffsets
from storage.tables.topics import NewTopic
from storage.view.settings import StoreSettings, save_settings

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.queues.queue_table import QueueTable
    from storage.tables.topic_table import Created
    from storage.tables.topics import TopicConfig


STORES_OWN: Final = MappingProxyType(
    {
        HALF_TOPIC: "transactions that may be pending",
        HALF_REMOVAL_TOPIC: "transactions that may be pending",
        GIVEN_UP_TOPIC: "transactions that were given up",
        SCHEDULE_TOPIC: "delayed messages that may be pending",
        TIMER_TOPIC: "delayed messages that may be pending",
    }
)
"""Topics that are not deleted, and what they hold."""
NAMED_MAX: Final = 8  # of the queues in a refusal


class TopicChanges:
    """Changes the topics of one engine; safe to call from several threads.

    While ``lock`` is held no topic changes; it is taken before the appender's.
    """

    def __init__(self, engine: Engine, appender: Appender, clock: Clock) -> None:
        self.lock = threading.Lock()
        self._engine = engine
        self._appender = appender
        self._clock = clock
        self._topics = engine.topics
        self._settings = engine.settings

    def create(self, groups: Sequence[Sequence[NewTopic]]) -> list[Created]:
        """Add topics, of each group all or none; durable on return. Refusals are in their group's place."""
        with self.lock:
            self._appender.check_open()
            if self._settings.deleting_topic:
                with self._appender.lock:
                    self._engine.settle()
                    self._finish_deletion()
            with self._failing(StoreError):
                created = self._topics.create_all(groups, now_ms=self._clock.now_ms())
            self._publish()
            return created

    def ensure(self, queue_counts: Mapping[str, int]) -> None:
        """Make topics of these names and numbers of queues where they are missing; durable on return."""
        missing = [
            [NewTopic(name=name, queue_count=count)]
            for name, count in queue_counts.items()
            if name not in self._topics
        ]
        for created in self.create(missing) if missing else ():
            if isinstance(created, Exception) and not isinstance(created, TopicExists):
                raise created  # if it exists, another call was faster

    def update(
        self,
        name: str,
        *,
        read_queue_count: int | None,
        write_queue_count: int | None,
        perm: int | None,
        attributes: Mapping[str, str],
        force: bool = False,
    ) -> TopicConfig:
        """Change what is given of a topic; durable on return.

        With fewer read queues nothing is appended between the look at what they hold and the change.
        Raises TopicNotFound, InvalidMessage, and without ``force`` QueuesInUse.
        """
        engine = self._engine
        with ExitStack() as held:
            held.enter_context(self.lock)
            self._appender.check_open()
            topic = self._topics.changed(
                name,
                read_queue_count=read_queue_count,
                write_queue_count=write_queue_count,
                perm=perm,
                attributes=attributes,
            )
            before = self._topics.get(name)
            if not force and topic.read_queue_count < before.read_queue_count:
                offsets = ConsumerOffsets(engine.filesystem, engine.paths.config, self._clock)
                engine.settle()  # so that appends wait for what came since only
                held.enter_context(self._appender.lock)
                self._appender.check_open()
                engine.settle()
                check_shrink(before, topic, offsets, engine.queues, engine.log.min_offset)
            with self._failing(StoreError):
                self._topics.replace(topic, now_ms=self._clock.now_ms())
            self._publish()
            return topic

    def delete(self, name: str) -> None:
        """Remove a topic, its queues, and its earlier records' claim to ever be in them again.

        Durable on return; the records stay in the log. Raises TopicNotFound, InvalidMessage, StoreFull.
        """
        self._appender.check_open()
        self._topics.get(name)
        if name in STORES_OWN:
            raise InvalidMessage("topic", f"{name!r} holds {STORES_OWN[name]}")
        self._engine.settle()  # so that appends wait for what came since only
        with self.lock, self._appender.lock:
            self._appender.check_open()
            with self._failing(StoreError):
                self._delete(name)
            self._appender.forget_topic(name)

    def deleted_at(self, name: str) -> int:
        """Return the commit offset before which no record belongs to the topic: 0 if it was never deleted."""
        return self._settings.deleted_topics.get(name, 0)

    def _delete(self, name: str) -> None:
        """Settings decide it, in one step; if the process dies after that, the next start finishes it."""
        self._topics.get(name)
        end_offset = self._engine.settle()
        self._finish_deletion()
        before = self._settings
        deleted = {**before.deleted_topics, name: end_offset}
        self._save(replace(before, deleted_topics=deleted, deleting_topic=name))
        try:
            self._topics.delete(name, now_ms=self._clock.now_ms())
        except (StoreFull, StoreBusy):
            # Taken back, or the next start would delete what has been stored since.
            with self._failing():
                self._save(before)
            raise
        self._publish()
        with suppress(StoreFull, StoreBusy):  # it is decided; the next change of topics finishes it
            self._finish_deletion()

    def _finish_deletion(self) -> None:
        """Remove what is left of a deleted topic, and note that nothing is.

        Nothing is appended meanwhile, and all that was is dispatched. Raises StoreFull, StoreBusy, and
        may be called again.
        """
        name = self._settings.deleting_topic
        if not name:
            return
        engine = self._engine
        with self._failing(StoreFull, StoreBusy):
            engine.dispatch.dispatcher.forget_units(engine.queues.remove_topic(name))
            engine.checkpointer.checkpoint(always=True)
        with self._failing(StoreFull, StoreBusy):
            self._save(replace(self._settings, deleting_topic=""))

    def _save(self, settings: StoreSettings) -> None:
        engine = self._engine
        self._settings = save_settings(engine.filesystem, engine.paths, settings, engine.config)

    def _publish(self) -> None:
        """Announce to other processes that the topic table on disk changed."""
        self._engine.publish_tables()

    @contextmanager
    def _failing(self, *passed: type[BaseException]) -> Iterator[None]:
        """Run changes of the store's small files: what a failed one left on the disk is not known.

        So it ends writing, with StoreFailed, but for errors of the kinds ``passed`` on.
        """
        try:
            yield
        except (StoreError, OSError) as error:
            if isinstance(error, passed):
                raise
            failure = (
                error
                if isinstance(error, StoreFailed)
                else StoreFailed(f"the store's files failed: {error}")
            )
            self._engine.fail(failure)
            raise failure from error


class QueueLag(NamedTuple):
    """How many messages a group has not read in a queue."""

    group: str
    queue_id: int
    lag: int

    def __str__(self) -> str:
        return f"group {self.group!r} has {self.lag} to read in queue {self.queue_id}"


def check_shrink(
    before: TopicConfig,
    after: TopicConfig,
    offsets: ConsumerOffsets,
    queues: QueueTable,
    min_commit_offset: int,
) -> None:
    """Raise QueuesInUse if a change takes queues away from those who read them, with who and how much.

    Groups' progress is what ``consumerOffset.json`` has, so a message under a lease counts as unread: a group's
    offset is never above the first of them. It may be a few seconds old: more counts then of a group it has;
    a group that it lacks, which has not begun there or has just now, does not count. Nothing is appended
    meanwhile, and all that was is dispatched.
    """
    count = after.read_queue_count
    if count >= before.read_queue_count:
        return
    if count < after.write_queue_count:
        problem = f"{after.write_queue_count} queues are written to and {count} would be read"
        raise QueuesInUse(before.name, f"{problem}; lower the write queues first")
    going = range(count, before.read_queue_count)
    lags = unread(before.name, going, offsets, queues, min_commit_offset)
    if lags:
        more = f", and {len(lags) - NAMED_MAX} more" if len(lags) > NAMED_MAX else ""
        named = ", ".join(map(str, lags[:NAMED_MAX])) + more
        raise QueuesInUse(before.name, f"{named}; let them be read first")


def unread(
    topic: str,
    queue_ids: range,
    offsets: ConsumerOffsets,
    queues: QueueTable,
    min_commit_offset: int,
) -> list[QueueLag]:
    """Return what each group that reads a topic has not read in some of its queues, the most first."""
    lags = []
    groups = offsets.groups_of(topic)
    for queue_id in queue_ids:
        queue = queues.known(topic, queue_id)
        if queue is None:
            continue
        first, end = queue.find_first(min_commit_offset), queue.next_offset
        for group, progress in groups.items():
            lag = end - max(progress.get(queue_id, first), first)
            if lag > 0:
                lags.append(QueueLag(group, queue_id, lag))
    return sorted(lags, key=lambda each: (-each.lag, each))
