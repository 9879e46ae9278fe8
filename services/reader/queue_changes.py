"""Which queues got messages since they were looked at last."""

from __future__ import annotations

from collections.abc import Collection

from storage.format.names import RETRY_PREFIX
from storage.reader import StoreReader
from storage.view.queues.arrived import ArrivedQueues, Queue


class QueueChanges:
    """What ``services.arrivals.ChangedKeys`` is, of the queues of a store."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._arrived = ArrivedQueues(reader.log)
        self._beside: tuple[object, ...] | None = None

    @property
    def position(self) -> int:
        """Commit offset up to where it has looked, of what is visible now.

        What is visible may end before that: without a writer's word all of a broker's files seem to be.
        """
        return min(self._arrived.position, self._reader.visible_offset)

    @property
    def end(self) -> int:
        """Commit offset up to which records are visible."""
        return self._reader.visible_offset

    def look(self) -> Collection[Queue | str] | None:
        """Return the queues that got messages, and their topics; None if that is not known, or more changed.

        Where a retry topic is among them, so is ``RETRY_PREFIX``.
        """
        positions = self._reader.positions
        found = self._arrived.look(self._reader.visible_offset)
        if positions is None:
            return None
        beside = (
            positions.writer_session, positions.writer_is_writable,
            positions.config_generation, positions.min_commit_offset,
        )  # fmt: skip
        if beside != self._beside:
            self._beside = beside
            return None
        if not found:
            return found
        topics = {topic for topic, _ in found}
        retries = {RETRY_PREFIX for topic in topics if topic.startswith(RETRY_PREFIX)}
        return {*found, *topics, *retries}
