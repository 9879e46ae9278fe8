"""A store as its checks see it: its files, how far its log goes, and what its checkpoint says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.view.incarnations import Incarnations, topics_there_are
from storage.view.log.commit_log import EVERYTHING
from storage.view.queues.queue_files import QueueFiles

if TYPE_CHECKING:
    from storage.files.filesystem import ReadFileSystem
    from storage.format.checkpoint import IndexerSlot, WriterSlot
    from storage.view.file_sizes import FileSizes
    from storage.view.layout import StorePaths
    from storage.view.log.commit_log import LogView
    from storage.view.log.walk import DamagedRange
    from storage.view.queues.comparison import RangeCheck
    from storage.view.queues.record_queues import QueueKey
    from storage.view.store_view import StoreView


@dataclass(frozen=True, slots=True)
class WalkedLog:
    """Where a walk of the whole log has begun and ended, and what is damaged of it.

    ``end_offset`` is after the lost end, if there is one: that is then the last of ``damage``.
    """

    min_offset: int
    end_offset: int
    records_end: int
    damage: tuple[DamagedRange, ...]


@dataclass(frozen=True, kw_only=True)
class CheckedStore:
    """A store that is checked. ``log`` is where its records are looked up, ``check`` what was met in it.

    Nothing below ``settled_offset`` changes meanwhile; it is EVERYTHING where nobody has the store open.
    """

    view: StoreView
    log: LogView
    sizes: FileSizes
    walked: WalkedLog
    check: RangeCheck
    topics: Incarnations
    abort_found: bool
    settled_offset: int = EVERYTHING

    @property
    def paths(self) -> StorePaths:
        """Where its files are."""
        return self.view.paths

    @property
    def filesystem(self) -> ReadFileSystem:
        """What they are read with."""
        return self.view.filesystem

    @property
    def durable(self) -> WriterSlot:
        """What the writer's newest slot says."""
        return self.view.checkpoint.durable

    @property
    def durable_index(self) -> IndexerSlot:
        """What the indexer's newest slot says."""
        return self.view.checkpoint.durable_index

    @property
    def is_settled(self) -> bool:
        """Whether nothing of the store changes meanwhile."""
        return self.settled_offset == EVERYTHING

    @property
    def compared_end(self) -> int:
        """Up to where records are compared with queues."""
        return min(self.walked.end_offset, self.settled_offset)

    def queue(self, key: QueueKey) -> QueueFiles:
        """Return the files of a queue, with the units of records that are compared."""
        return self.view.open_queue(*key, self.walked.min_offset, self.compared_end)


def live_topics(view: StoreView) -> Incarnations:
    """Return whose records are to have units: those to which the next start would give some."""
    known = None
    if not view.filesystem.exists(view.paths.abort):
        known = topics_there_are((key[0] for key in view.queue_directories()), view.topic_names())
    return replace(view.settings.incarnations, known=known)
