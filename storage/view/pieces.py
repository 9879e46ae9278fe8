"""Parts of a store that one task reads: a range of the log, or of the units of one queue.

Both are fixed when planned, so that a task meets no half-written record and reads the same when it runs
again. They are pickled with the place of the store, and nothing that was read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.files.mapped_file_queue import FileEntry

if TYPE_CHECKING:
    from storage.kernels.columns import ByteArray
    from storage.view.queues.queue_files import QueueFiles
    from storage.view.store_view import StoreView


@dataclass(frozen=True)
class Target:
    """Records of one queue that a log piece keeps: those at commit offsets ``[begin, end)``."""

    topic: str
    queue_id: int
    begin: int
    end: int


@dataclass(frozen=True)
class LogPiece:
    """Commit offsets ``[begin, end)`` of one log file; every record, or those of the targets.

    ``bounds`` are those of the log that queues cover. Where ``is_lost``, no file holds the range.
    """

    store: StoreView
    file: FileEntry
    begin: int
    end: int
    targets: tuple[Target, ...] | None = None
    bounds: tuple[int, int] = (0, 0)
    is_lost: bool = False

    @property
    def cost(self) -> int:
        """Bytes to read; of a lost range, those of the records to name. As one range it costs nothing."""
        return 0 if self.is_lost and self.targets is None else self.end - self.begin

    @property
    def file_start(self) -> int:
        """Commit offset of the first byte of the file."""
        return self.file.start_offset

    def data(self) -> ByteArray:
        """Return the array that the piece lies in, at the positions of its file."""
        start = self.file.start_offset
        return self.store.map(self.file.path, self.begin - start, self.end - start)

    def open_queue(self, topic: str, queue_id: int) -> QueueFiles:
        """Open a queue's files again in a task, seen as they were planned."""
        return self.store.open_queue(topic, queue_id, *self.bounds)


@dataclass(frozen=True)
class QueuePiece:
    """Queue offsets ``[begin, end)`` of one queue, read through its units; about ``cost`` bytes."""

    store: StoreView
    topic: str
    queue_id: int
    begin: int
    end: int
    bounds: tuple[int, int]
    cost: int

    def open_queue(self, topic: str, queue_id: int) -> QueueFiles:
        """Open a queue's files again in a task, seen as they were planned."""
        return self.store.open_queue(topic, queue_id, *self.bounds)


StorePiece = LogPiece | QueuePiece
