"""What of a store may be read: as far as its writer says, who may die and come back at any time."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from storage.checkpoint.positions import CheckpointFile, Role
from storage.checkpoint.trust import Trust, trust_in
from storage.errors import StoreClosed
from storage.kernels.columns import STOP_END
from storage.tables.topic_table import TopicTable
from storage.view.bounds import Bounds, stated_bounds
from storage.view.log.commit_log import EVERYTHING, CommitLogView
from storage.view.queues.views import QueueViews

if TYPE_CHECKING:
    from pathlib import Path

    from storage.files.filesystem import FileSystem
    from storage.format.checkpoint import WriterSlot

UNLIMITED: Final = (0, EVERYTHING)  # bounds that hide nothing


class Visibility:
    """Brings a reader's log, topics and queues up to what the writer has published since.

    Without a writer's word (a broker's store, or one that a broker ran on last) everything is visible;
    ``bounds`` (commit offsets) fix it, whatever the writer says.
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
        self._trust: Trust | None = None  # in the page, when it was last looked at
        self._bounds_at_rest = UNLIMITED  # while no position moves
        self._generation = 0
        self.has_ended = False

    @property
    def trusted_positions(self) -> CheckpointFile | None:
        """The page as of the last update; None where our writer has said nothing, or a broker ran since."""
        trust = self._trust
        return self.positions if trust is not None and trust.durable.trusted else None

    def tables_state(self) -> tuple[int, int] | None:
        """Return what is another one after every change of topics that a writer publishes; None where none does."""
        self.update()
        trust = self._trust
        return (trust.session, self._generation) if trust is not None and trust.is_live else None

    @property
    def is_written(self) -> bool:
        """Whether, as of the last update, a writer's positions move."""
        return self._trust is not None and self._trust.is_live

    @property
    def shows_all(self) -> bool:
        """Whether, as of the last update, all is shown that there is: no recovery can bring more."""
        trust = self._trust
        return trust is None or trust.is_live or not trust.durable.trusted or trust.durable.clean

    def update(self) -> None:
        """Take over what the writer has published since.

        Raises StoreClosed after ``end``, UnsupportedFormat where newer code has written the page.
        """
        if self.has_ended:
            raise StoreClosed("the reader is closed")
        if self._fixed_bounds is not None:
            self._log.set_bounds(*self._fixed_bounds)
            return
        positions = self.positions
        if positions is None:
            positions = self._open_positions()
        if positions is None:
            self._log.refresh()
            return
        trust = self._trust
        if trust is None or positions.head != trust.head:
            trust = self._decide(positions)
        if trust.is_live and positions.config_generation != self._generation:
            with self._guard:
                generation = positions.config_generation
                self._topics.reload()
                self._queues.forget()  # a topic may be gone, or another of the same name
                self._generation = generation
        bounds = _published(positions) if trust.is_live else self._bounds_at_rest
        if bounds != self._log.bounds:
            with self._guard:  # read again: another thread may have taken over newer ones
                self._log.set_bounds(*self._visible(positions))
        elif bounds == UNLIMITED:
            self._log.refresh()  # nobody publishes that a broker has made another file

    def _open_positions(self) -> CheckpointFile | None:
        with self._guard:
            if self.positions is None:
                with suppress(FileNotFoundError):
                    positions = CheckpointFile.open(self._filesystem, self._checkpoint, Role.READER)
                    try:
                        self._decide(positions)
                    except BaseException:
                        positions.close()
                        raise
                    self.positions = positions
            return self.positions

    def _decide(self, positions: CheckpointFile) -> Trust:
        """Find out what of the page holds."""
        with self._guard:
            trust = trust_in(positions)
            if self._is_older_than_log(trust.durable):
                trust = trust_in(positions)
                if self._is_older_than_log(trust.durable):  # and no writer has begun meanwhile
                    durable = trust.durable._replace(trusted=False)
                    trust = trust._replace(durable=durable, is_live=False, session=0)
            if self._trust is None or trust.session != self._trust.session:
                # A writer started, or a broker: recovery may have changed what was known of files
                # and queues.
                self._log.refresh()
                self._topics.reload()
                self._queues.forget()
            self._bounds_at_rest = _queued(stated_bounds(trust.durable, None))
            self._trust = trust  # last: who finds it needs not wait
            return trust

    def _is_older_than_log(self, durable: WriterSlot) -> bool:
        """Whether a record follows where the log is said to have ended at an orderly stop: the page is an old copy."""
        if not (durable.trusted and durable.clean):
            return False
        end = durable.flushed_offset
        following = self._log.next_start(end)
        return any(
            self._log.check(place)[1] == STOP_END for place in (end, following) if place is not None
        )

    def _visible(self, positions: CheckpointFile) -> tuple[int, int]:
        """Return from and up to which commit offset records with a unit may be read."""
        trust = self._trust
        if trust is None or not trust.is_live:
            return self._bounds_at_rest
        dispatched_offset = positions.dispatched_offset  # first: it follows what is confirmed
        return _queued(
            stated_bounds(
                trust.durable,
                Bounds(positions.min_commit_offset, positions.confirm_offset, dispatched_offset),
            )
        )

    def refresh(self) -> None:
        """Look again at the log and the topics on disk."""
        with self._guard:
            self.update()
            self._log.refresh()
            self._topics.reload()

    def end(self) -> None:
        """Refuse updates from here on."""
        self.has_ended = True

    def close(self) -> None:
        """Let go of the checkpoint."""
        if self.positions is not None:
            self.positions.close()


def _queued(bounds: Bounds | None) -> tuple[int, int]:
    return UNLIMITED if bounds is None else (bounds.min_offset, bounds.queued_offset)


def _published(positions: CheckpointFile) -> tuple[int, int]:
    return positions.min_commit_offset, positions.dispatched_offset
