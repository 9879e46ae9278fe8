"""A writer's own view of its log and of one queue: records at queue offsets, proved as in a pull."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.kernels.columns import STOP_END, Rows, new_rows
from storage.kernels.scan import scan_records
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.consume_queue import ConsumeQueueView
from storage.view.queues.records import records_at

if TYPE_CHECKING:
    from storage.engine.engine import Engine
    from storage.files.filesystem import ByteArray
    from storage.message import Damage

Longs = npt.NDArray[np.int64]
ROWS_MAX: Final = 65_536  # looked at together
MAPPED_FILES_MAX: Final = 64  # what is due together lies all over a queue: 19 million records


class QueueRecords(NamedTuple):
    """The first ``looked_at`` of the offsets asked for. ``data`` has the records one after the other.

    Behind them it has ``room`` for each record. ``queue_offsets`` are those of the records; what is missing
    there is ``damaged``, or gone from the log.
    """

    looked_at: int
    queue_offsets: Longs
    data: ByteArray
    records_end: int
    rows: Rows
    damaged: tuple[Damage, ...]


class WriterLogView(CommitLogView):
    """A writer's own view of its log, as far as it was dispatched at the last ``look``."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.filesystem, engine.paths.commit_log, mapped_files_max=8)
        self.engine = engine

    def look(self) -> int:
        """See what was dispatched by now; return where that ends."""
        position = self.engine.dispatch.position
        self.set_bounds(self.engine.log.min_offset, position)
        return position


class WriterQueueView:
    """Used by one thread."""

    def __init__(self, log: WriterLogView, topic: str, queue_id: int) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self._log = log
        self._view = ConsumeQueueView(
            log.engine.filesystem,
            log.engine.paths.consume_queue / topic / str(queue_id),
            log,
            mapped_files_max=MAPPED_FILES_MAX,
        )

    def close(self) -> None:
        """Let go of its files."""
        self._view.close()

    def bounds(self) -> tuple[int, int]:
        """Return the first and the next queue offset of what the log's bounds let see."""
        end = self._view.max_offset(self._log.visible_offset)
        return self._view.min_offset(self._log.min_offset, end), end

    def tag_codes(self, begin: int, end: int) -> Longs:
        """Return the tag codes of units: in the schedule topic, when each is due."""
        codes: Longs = self._view.units(begin, end - begin)["tag"].astype(np.int64)
        return codes

    def records(self, queue_offsets: Longs, *, bytes_max: int, room: int) -> QueueRecords:
        """Return the records at ascending queue offsets, as many as ``bytes_max`` has room for."""
        found = records_at(
            self._log, self._view, topic=self.topic, queue_id=self.queue_id,
            queue_offsets=queue_offsets, max_bytes=bytes_max,
        )  # fmt: skip
        count = len(found.queue_offsets)
        size = sum(map(len, found.slices))
        data = np.empty(size + count * room, np.uint8)
        at = 0
        for piece in found.slices:
            data[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)
        rows = new_rows(count)
        scanned, _, stop = scan_records(data, 0, size, 0, 0, rows)
        assert (scanned, stop) == (count, STOP_END)
        return QueueRecords(
            found.looked_at, found.queue_offsets, data, size, rows, found.damaged
        )  # fmt: skip

    def read(
        self, queue_offsets: Longs, *, bytes_max: int, room: int = 0
    ) -> Iterator[QueueRecords]:
        """Yield the records at ascending queue offsets, some at a time. Raises OSError."""
        left = queue_offsets
        while len(left):
            records = self.records(left[:ROWS_MAX], bytes_max=bytes_max, room=room)
            yield records
            left = left[max(records.looked_at, 1) :]
