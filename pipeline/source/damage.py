"""Rows of what is damaged: where it lies, as far as it is known, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.source.schemas import CORRUPT, STORE
from storage.kernels.columns import stop_text
from storage.view.log.walk import DamagedRange
from storage.view.pieces import LogPiece

LOST_FILE: Final = "the file is missing"
LOST_STOP: Final = -1  # among the stops of a scan: the file ends before the record
SIZE_MAX: Final = (1 << 31) - 1

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DamagedRows:
    """Damaged ranges of the log, or records of one queue, a row each; ``reasons`` are Arrow strings."""

    commit_offsets: Int64s
    sizes: Int64s
    reasons: Any
    topic: str | None = None
    queue_id: int | None = None
    queue_offsets: Int64s | None = None

    def __len__(self) -> int:
        return len(self.commit_offsets)

    def batch(self, store: str, schema: Any) -> Any:
        """Return the record batch of a schema: what is known, and nulls."""
        known: dict[str, Any] = {
            "topic": repeated(self.topic, len(self)),
            "queueId": repeated(self.queue_id, len(self)),
            "partition": repeated(self.queue_id, len(self)),
            "queueOffset": self.queue_offsets,
            "offset": self.queue_offsets,
            "physicalOffset": self.commit_offsets,
            "size": np.minimum(self.sizes, SIZE_MAX),
            CORRUPT: self.reasons,
            STORE: repeated(store, len(self)),
        }
        arrays = [
            pa.nulls(len(self), field.type)
            if known.get(field.name) is None
            else pa.array(known[field.name]).cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def repeated(value: str | int | None, count: int) -> Any:
    """Return an Arrow array of one value, None without a value."""
    return None if value is None else pa.repeat(pa.scalar(value), count)


def reasons_of(stops: Int64s) -> Any:
    """Return the words for each stop of a scan, or for ``LOST_STOP``, as Arrow strings."""
    distinct, which = np.unique(stops, return_inverse=True)
    texts = [LOST_FILE if stop == LOST_STOP else stop_text(stop) for stop in distinct.tolist()]
    return pa.array(texts, pa.string()).take(pa.array(which))


def damaged_by(piece: LogPiece, damage: DamagedRange) -> Iterator[DamagedRows]:
    """Yield a damaged range as one row; of chosen queues, a row for each unit that points into it.

    At most ``storage.view.queues.queue_files.UNITS_MAX`` rows at a time.
    """
    begin, end = damage.begin_offset, damage.end_offset
    if piece.targets is None:
        yield DamagedRows(np.array([begin]), np.array([end - begin]), repeated(damage.reason, 1))
        return
    for target in piece.targets:
        queue = piece.open_queue(target.topic, target.queue_id)
        for numbers, units in queue.units_into(max(begin, target.begin), min(end, target.end)):
            yield DamagedRows(
                units["offset"].astype(np.int64), units["size"].astype(np.int64),
                repeated(damage.reason, len(units)),
                target.topic, target.queue_id, numbers,
            )  # fmt: skip
