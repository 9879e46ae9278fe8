"""How large the records of a slice become, and where each goes in a new log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from pipeline.errors import PipelineError
from pipeline.jobs.new_store.log_slices import Longs, SliceRecords, time_order
from storage.format.properties import PROPERTIES_SIZE_MAX
from storage.kernels.columns import COMMIT_OFFSET
from storage.kernels.placing import lay_out, placed_sizes
from storage.view.queues.record_queues import QueueKey

NO_BYTES: Final = np.empty(0, np.uint8)
NO_LONGS: Final = np.empty(0, np.int64)


@dataclass(frozen=True)
class RecordChange:
    """What becomes of a record besides its place: a new topic, and properties of its own.

    ``marks`` gives the bytes of one more property for each record, as ``(bytes, where each begins and
    the last ends)``.
    """

    topic: str = ""

    def key(self, key: QueueKey) -> QueueKey:
        """Return the queue that records of a queue go into."""
        topic, queue_id = key
        return self.topic or topic, queue_id

    def marks(
        self,
        taken: SliceRecords,  # noqa: ARG002  for jobs that mark
    ) -> tuple[npt.NDArray[np.uint8], Longs]:
        """Return the additional property of each record; none by default."""
        return NO_BYTES, NO_LONGS


def sizes_of(part: SliceRecords, change: RecordChange) -> Longs:
    """Return the bytes that each record will take. Raises PipelineError for one that gets too long."""
    sizes = np.empty(len(part.rows), np.int64)
    _, starts = change.marks(part)
    total = int(placed_sizes(part.data, part.rows, len(change.topic), starts, sizes))
    if total < 0:
        row = part.rows[-1 - total]
        raise PipelineError(
            f"the message at commit offset {int(row[COMMIT_OFFSET])} has no room for one more property:"
            f" all of them take {PROPERTIES_SIZE_MAX} bytes at most; selection others by time, tag or key"
        )
    return sizes


class LogLayout:
    """The records that a slice gives to one output, and where each goes."""

    def __init__(
        self, taken: Sequence[SliceRecords], change: RecordChange, begin: int, file_size: int
    ) -> None:
        self.taken = taken
        self.order = time_order(taken)
        self.sizes = np.concatenate([sizes_of(part, change) for part in taken])
        ordered = self.sizes if self.order is None else self.sizes[self.order]
        offsets = np.empty(len(ordered), np.int64)
        self.end = int(lay_out(ordered, begin, file_size, offsets))
        if self.end < 0:
            raise PipelineError(
                f"a record of {int(ordered[-1 - self.end])} bytes does not fit into a commit log file"
                f" of {file_size}; selection a greater log_file_size"
            )
        self.offsets = self.unordered(offsets)

    def unordered(self, values: Longs) -> Longs:
        """Bring values in the order of the log into the order of ``taken``."""
        if self.order is None:
            return values
        found = np.empty_like(values)
        found[self.order] = values
        return found

    def queue_offsets(self, numbers: Longs, nexts: Longs) -> Longs:
        """Count up each queue in the log's order; ``numbers`` says which queue a record goes to."""
        ordered = numbers if self.order is None else numbers[self.order]
        by_queue = np.argsort(ordered, kind="stable")
        sorted_numbers = ordered[by_queue]
        begins = np.searchsorted(sorted_numbers, np.arange(len(nexts)))
        ranks = np.empty(len(ordered), np.int64)
        ranks[by_queue] = np.arange(len(ordered)) - begins[sorted_numbers]
        return self.unordered(nexts[ordered] + ranks)
