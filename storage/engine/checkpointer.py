"""The thread that turns what happened into what a restart may rely on.

Each round: note how far log and queues are, sync the queues, then raise the durable slot of the
checkpoint. Recovery starts from there, so the round's interval bounds its work, not the store's size.
The first round that fails is the last, whoever asked for it; the slot then stays where it was, which
is always true.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from storage.errors import StoreFailed

if TYPE_CHECKING:
    from storage.checkpoint.positions import CheckpointFile
    from storage.queues.queue_table import QueueTable


class Progress(NamedTuple):
    """How far the store is, read before a round's syncs."""

    appended_offset: int
    last_timestamp_ms: int  # store time of the last record before appended_offset
    flushed_offset: int
    dispatched: tuple[int, int]  # offset, and how many units the queues hold there


class CheckpointKeeper:
    """Writes the durable slot at intervals and at the end. The checkpoint's only durable writer."""

    def __init__(
        self,
        positions: CheckpointFile,
        queues: QueueTable,
        *,
        store_id: bytes,
        interval_ms: int,
        progress: Callable[[], Progress],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._positions = positions
        self._queues = queues
        self._store_id = store_id
        self._interval_s = interval_ms / 1000
        self._progress = progress
        self._fail = fail
        self._wake = threading.Event()
        self._stopping = False
        self._failure: BaseException | None = None
        self._round = threading.Lock()
        self._stored: tuple[int, int] | None = None
        self._dispatched: deque[tuple[int, int]] = deque()
        self._marks: deque[tuple[int, int]] = deque()  # (end of records, their last store time)
        self._thread = threading.Thread(target=self._run, name="penstock-keeper", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def hurry(self) -> None:
        """Begin the next round now: much was dispatched since the last."""
        self._wake.set()

    def keep(self, *, clean: bool = False, always: bool = False) -> None:
        """Do one round now. Raises StoreFailed when a sync fails, or has failed before."""
        with self._round:
            if self._failure is None:
                try:
                    self._do_round(clean=clean, always=always)
                except BaseException as error:  # noqa: BLE001  told to everybody
                    # The kernel may take what it could not write for written: a second sync that
                    # succeeds would prove nothing.
                    self._failure = error
                    self._fail(error)
            if self._failure is not None:
                raise StoreFailed(f"the checkpoint failed: {self._failure}") from self._failure

    def _do_round(self, *, clean: bool, always: bool) -> None:
        progress = self._progress()
        dispatched_offset, unit_count = self._durable_units(progress)
        reached = (progress.flushed_offset, dispatched_offset)
        if reached == self._stored and not clean and not always:
            return
        self._queues.sync()
        self._positions.durable.store(
            store_id=self._store_id,
            flushed_offset=progress.flushed_offset,
            dispatched_offset=dispatched_offset,
            unit_count=unit_count,
            physic_timestamp_ms=self._timestamp_ms(progress, dispatched_offset),
            logics_timestamp_ms=self._timestamp_ms(progress, dispatched_offset),
            clean=clean,
        )
        self._stored = reached

    def _durable_units(self, progress: Progress) -> tuple[int, int]:
        """Return the furthest known place of dispatch that the log is durable up to."""
        self._dispatched.append(progress.dispatched)
        while len(self._dispatched) > 1 and self._dispatched[1][0] <= progress.flushed_offset:
            self._dispatched.popleft()
        return self._dispatched[0]

    def _timestamp_ms(self, progress: Progress, offset: int) -> int | None:
        """Return the store time up to which a broker may take log and queues for durable."""
        if not self._marks or self._marks[-1][0] < progress.appended_offset:
            self._marks.append((progress.appended_offset, progress.last_timestamp_ms))
        found = None
        while len(self._marks) > 1 and self._marks[1][0] <= offset:
            self._marks.popleft()
        if self._marks[0][0] <= offset:
            found = self._marks[0][1]
        return found or None

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(self._interval_s)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self.keep()
            except StoreFailed:
                return
