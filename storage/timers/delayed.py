"""Delayed messages of a writer: parked as they are appended, delivered when they are due, recalled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.errors import StoreError
from storage.log.followers import DurableNeed
from storage.timers.parking import Parking
from storage.timers.recalls import Recalls
from storage.timers.worker import TimerWorker

if TYPE_CHECKING:
    from storage.clock import Clock
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.engine.topic_changes import TopicChanges
    from storage.log.batches import Prepared
    from storage.timers.delivery import DeliveryCounts, TimerStatus
    from storage.workers import Workers

LOCAL_HOST: Final = "127.0.0.1:0"


class DelayedMessages:
    """What a writer has of delayed messages. Safe to call from several threads."""

    def __init__(
        self, engine: Engine, appender: Appender, topics: TopicChanges, clock: Clock,
        workers: Workers | None,
    ) -> None:  # fmt: skip
        """Have the appender park what is delayed from here on."""
        self._worker = TimerWorker(engine, appender, topics, clock, workers=workers)
        self._worker.add_failure_listener(engine.fail)
        self._parking = Parking(engine, topics, clock)
        self._recalls = Recalls(engine, appender, self._parking, clock)
        appender.park_by(self._parking.park, self._worker.expect)
        engine.on_dispatched = self._worker.dispatched
        needs = DurableNeed(self._worker.needed_offset, engine.log)
        engine.followers.register("timers", needs)

    def start(self) -> None:
        """Begin to deliver."""
        self._worker.start()

    def end(self) -> None:
        """Deliver nothing after the step under way; returns at once."""
        self._worker.end()

    def close(self) -> None:
        """Save how far it is, and let go of files."""
        with suppress(StoreError):
            self._worker.stop()
        self._worker.close()

    def refuse(self, prepared: Prepared) -> Prepared:
        """Return a batch of which no record is delayed. Raises InvalidBatch with the index of the first that is."""
        return self._parking.refuse(prepared)

    def recall(
        self, topic: str, unique_key: str, recall_ms: int, *, born_host: str = LOCAL_HOST
    ) -> int:
        """Have a delayed message not delivered; return the end of what was appended. Does not wait for durability.

        ``recall_ms`` is that of the message's PutResult. Raises TopicNotFound, InvalidMessage,
        TooLateToRecall, StoreBusy, StoreFull, StoreFailed.
        """
        return self._recalls.recall(topic, unique_key, recall_ms, born_host=born_host)

    def status(self, within_ms: Sequence[int] = ()) -> TimerStatus:
        """Return how many messages wait for their time, and how many are due within each of the times."""
        return self._worker.status(within_ms)

    def is_done(self) -> bool:
        """Return whether everything that is due by now has been delivered."""
        # In this order: a step that has taken what is due has no work, and is moving.
        return not self._worker.has_work() and not self._worker.is_moving

    @property
    def counts(self) -> DeliveryCounts:
        """What became of due messages since the start."""
        return self._worker.counts
