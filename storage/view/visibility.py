"""What of a store may be read: as far as its writer says, who may die and come back at any time."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from storage.checkpoint.positions import CheckpointFile, Role
from storage.errors import StoreClosed
from storage.tables.topics import TopicTable
from storage.view.log.commit_log import EVERYTHING, CommitLogView
from storage.view.queues.views import QueueViews

if TYPE_CHECKING:
    from pathlib import Path

    from storage.checkpoint.durable_slots import DurablePositions
    from storage.files.filesystem import FileSystem


class Visibility:
    """Brings a reader's log, topics and queues up to what the writer has published since.

    Without a writer's word (a broker's store) everything is visible; ``bounds`` (commit offsets) fix
    it, whatever the writer says.
    """

    def __init__(
        self,
        filesystem: FileSystem,
        checkpoint: Path,
        *,
        log: CommitLogView,
        topics: TopicTable,
        queues: QueueViews,
        bounds: tuple[int, int] | None,
    ) -> None:
        self.positions: CheckpointFile | None = None
        self._filesystem = filesystem
        self._checkpoint = checkpoint
        self._log = log
        self._topics = topics
        self._queues = queues
        self._fixed_bounds = bounds
        self._guard = threading.RLock()
        self._durable: DurablePositions | None = None
        self._session = 0
        self._generation = 0
        self._closed = False

    def update(self) -> None:
        """Take over what the writer has published since. Raises StoreClosed after ``end``."""
        if self._closed:
            raise StoreClosed("the reader is closed")
        if self._fixed_bounds is not None:
            self._log.set_bounds(*self._fixed_bounds)
            return
        positions = self.positions
        if positions is None:
            positions = self._open_positions()
        if positions is None:
            self._log.set_bounds(0, EVERYTHING)
        elif positions.writer_is_current:
            if positions.writer_session != self._session:
                self._begin_session(positions)
            if positions.config_generation != self._generation:
                with self._guard:
                    generation = positions.config_generation
                    self._topics.reload()
                    self._queues.forget()  # a topic may be gone, or another of the same name
                    self._generation = generation
            if _bounds(positions) != self._log.bounds:
                with self._guard:  # read again: another thread may have taken over newer ones
                    self._log.set_bounds(*_bounds(positions))
        else:
            # Nobody has published since the machine started: only what was durable is sure.
            durable = self._durable
            trusted = durable is not None and durable.trusted
            self._log.set_bounds(
                0, durable.dispatched_offset if durable and trusted else EVERYTHING
            )

    def _open_positions(self) -> CheckpointFile | None:
        with self._guard:
            if self.positions is None:
                with suppress(FileNotFoundError):
                    positions = CheckpointFile.open(self._filesystem, self._checkpoint, Role.READER)
                    self._durable = positions.durable.load()
                    self.positions = positions
            return self.positions

    def _begin_session(self, positions: CheckpointFile) -> None:
        """A writer started: recovery may have changed what was known of files and queues."""
        with self._guard:
            session = positions.writer_session
            if session == self._session:
                return
            self._log.refresh()
            self._topics.reload()
            self._queues.forget()
            self._session = session  # last: who finds it needs not wait

    def refresh(self) -> None:
        """Look again at the log and the topics on disk."""
        with self._guard:
            self.update()
            self._log.refresh()
            self._topics.reload()

    def end(self) -> bool:
        """Refuse updates from here on; False if that was done before."""
        with self._guard:
            ended, self._closed = self._closed, True
            return not ended

    def close(self) -> None:
        """Let go of the checkpoint."""
        if self.positions is not None:
            self.positions.close()


def _bounds(positions: CheckpointFile) -> tuple[int, int]:
    return positions.min_commit_offset, positions.dispatched_offset
