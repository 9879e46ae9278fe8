"""What a writer counts of its work since its start, for whoever shows it; every method is for any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.view.log.commit_log import ListedLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from storage.counts import Histogram
    from storage.engine.appender import Appender
    from storage.engine.engine import Engine
    from storage.files.protocol import DiskSpace


class StoreCounts:
    """Times are seconds. ``append`` is from the wait for the lock until records are stored.

    ``flush`` and ``dispatch`` are from there until one append in a while was durable, and shown to consumers;
    ``sync`` is of the log, ``checkpoint`` the syncs of queues and of the page.
    """

    def __init__(self, engine: Engine, appender: Appender) -> None:
        self._engine = engine
        self._oldest: tuple[int, int] = (
            -1,
            0,
        )  # where the log began, and the time of its first record
        self.append: Histogram = appender.seconds
        self.flush: Histogram = engine.flush_latency.seconds
        self.dispatch: Histogram = engine.dispatch_latency.seconds
        self.sync: Histogram = engine.flusher.seconds
        self.checkpoint: Histogram = engine.checkpointer.seconds
        self.appended = appender.appended
        self.appended_count = appender.appended_count

    def offsets(self) -> Mapping[str, int]:
        """Return the positions of the log, as the checkpoint page has them, and what is durable of log and queues."""
        log, positions = self._engine.log, self._engine.positions
        return {
            "minimum": log.min_offset,
            "appended": log.appended_offset,
            "committed": log.committed_offset,
            "flushed": log.flushed_offset,
            "confirmed": positions.confirm_offset,
            "dispatched": self._engine.dispatch.position,
            "checkpointed": self._engine.checkpointer.durable_offset,
        }

    @property
    def rebuilt_unit_count(self) -> int:
        """Units of queues that were not what the log says, and were written again."""
        return self._engine.queue_rebuild.rebuilt_count

    def disk_space(self) -> DiskSpace:
        """Return how full the log's disk is. Raises OSError."""
        return self._engine.filesystem.space(self._engine.paths.commit_log)

    def oldest_ms(self) -> int:
        """Return when the oldest record was stored, at most 0 where there is none. Raises OSError."""
        min_offset = self._engine.log.min_offset
        if self._oldest[0] != min_offset or self._oldest[1] <= 0:
            log = ListedLog(self._engine.filesystem, self._engine.paths.commit_log)
            self._oldest = min_offset, log.record_time_ms(min_offset)
        return self._oldest[1]
