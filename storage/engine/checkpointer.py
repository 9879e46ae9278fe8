"""The worker that turns what happened into what a restart, and a broker, may rely on.

Each checkpoint: write the topic table if it has changed, note how far log and queues are, sync the
queues, then raise the durable slot of the checkpoint file. Recovery starts from there, so the interval
bounds its work, not the store's size.
The first checkpoint that fails is the last, whoever asked for it; the slot then stays where it was,
which is always true. One that finds no descriptor to open a file with has not failed: it comes later.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from storage.counts import Histogram
from storage.errors import StoreBusy, StoreFull
from storage.workers import Worker

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.queues.queue_table import QueueTable
    from storage.workers import Workers


RETRY_S: Final = 0.5  # after a queue file could not be opened: nothing was synced in vain


class LogProgress(NamedTuple):
    """How far the store is, read before a checkpoint's syncs."""

    appended_offset: int
    last_timestamp_ms: int  # store time of the last record before appended_offset
    flushed_offset: int
    dispatched: tuple[int, int]  # offset, and how many units the queues hold there


class Checkpointer(Worker):
    """Writes the durable slot at intervals and at the end. The checkpoint's only durable writer."""

    full_retry_s = RETRY_S

    def __init__(
        self,
        positions: CheckpointFile,
        queues: QueueTable,
        *,
        store_id: bytes,
        synced_only: bool,
        interval_ms: int,
        progress: Callable[[], LogProgress],
        save_topics: Callable[[], None],
        workers: Workers | None = None,
    ) -> None:
        super().__init__("checkpoint", workers=workers)
        self._positions = positions
        self._queues = queues
        self._store_id = store_id
        self._synced_only = synced_only
        self._interval_s = interval_ms / 1000
        self._progress = progress
        self._save_topics = save_topics
        self.seconds = Histogram()  # of checkpoints, the syncs of queues among it
        self._hurried = False
        self._stored: tuple[int, int] | None = None
        self._dispatched: deque[tuple[int, int]] = deque()
        self._marks: deque[tuple[int, int]] = deque()  # (end of records, their last store time)

    @property
    def durable_offset(self) -> int:
        """Where a start would go on: the end of what is durable of the log and of its queues."""
        return 0 if self._stored is None else min(self._stored)

    def hurry(self) -> None:
        """Make the next checkpoint now: much was dispatched since the last."""
        self._hurried = True
        self.wake()

    def begin(self, durable_units: tuple[int, int]) -> None:
        """Store the first slot of a session, before anything is appended: the log is durable, and the queues so far.

        They are not synced for it. What a start has left to sync of them, the next checkpoint does.
        """
        progress = self._progress()
        self._dispatched.extend((durable_units, progress.dispatched))
        self.guarded(lambda: self._store(progress, durable_units, clean=False))

    def checkpoint(self, *, clean: bool = False, always: bool = False) -> None:
        """Make a checkpoint in this thread; without ``always`` only if there is something new.

        Raises StoreFailed when a sync fails, or has failed before; StoreBusy while files cannot be
        opened.
        """
        # After a failed sync the kernel may take what it could not write for written: a second sync
        # that succeeds would prove nothing.
        self.guarded(lambda: self._checkpoint(clean=clean, always=always))

    def drop_units(self, drop: Callable[[], int]) -> None:
        """Make a checkpoint without the units that ``drop()`` takes out of the count, and returns.

        They are of records before every place that a checkpoint may still name. Raises as ``checkpoint``.
        """
        self.guarded(lambda: self._drop_units(drop))

    def _drop_units(self, drop: Callable[[], int]) -> None:
        dropped = drop()
        self._dispatched = deque((offset, count - dropped) for offset, count in self._dispatched)
        self._checkpoint(clean=False, always=True)

    def has_work(self) -> bool:
        """Return whether somebody is in a hurry."""
        return self._hurried

    def idle_s(self) -> float:
        """Return the interval."""
        return self._interval_s

    def work(self) -> None:
        """Make a checkpoint if there is something new."""
        self._hurried = False
        self._checkpoint(clean=False, always=False)

    def _checkpoint(self, *, clean: bool, always: bool) -> None:
        with suppress(StoreFull, StoreBusy):  # changes of topics are durable in the journal
            self._save_topics()
        progress = self._progress()
        dispatched = self._durable_units(progress)
        if (progress.flushed_offset, dispatched[0]) == self._stored and not clean and not always:
            return
        began = time.perf_counter()
        self._queues.sync()
        self._store(progress, dispatched, clean=clean)
        self.seconds.add(time.perf_counter() - began)

    def _store(self, progress: LogProgress, dispatched: tuple[int, int], *, clean: bool) -> None:
        dispatched_offset, unit_count = dispatched
        self._positions.durable.store(
            store_id=self._store_id,
            flushed_offset=progress.flushed_offset,
            dispatched_offset=dispatched_offset,
            unit_count=unit_count,
            physic_timestamp_ms=self._timestamp_ms(progress, dispatched_offset),
            logics_timestamp_ms=self._timestamp_ms(progress, dispatched_offset),
            clean=clean,
            synced_only=self._synced_only,
        )
        self._stored = progress.flushed_offset, dispatched_offset

    def _durable_units(self, progress: LogProgress) -> tuple[int, int]:
        """Return the furthest known place of dispatch that the log is durable up to."""
        self._dispatched.append(progress.dispatched)
        while len(self._dispatched) > 1 and self._dispatched[1][0] <= progress.flushed_offset:
            self._dispatched.popleft()
        return self._dispatched[0]

    def _timestamp_ms(self, progress: LogProgress, offset: int) -> int | None:
        """Return the store time up to which a broker may take log and queues for durable."""
        if not self._marks or self._marks[-1][0] < progress.appended_offset:
            self._marks.append((progress.appended_offset, progress.last_timestamp_ms))
        found = None
        while len(self._marks) > 1 and self._marks[1][0] <= offset:
            self._marks.popleft()
        if self._marks[0][0] <= offset:
            found = self._marks[0][1]
        return found or None
