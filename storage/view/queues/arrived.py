"""Which queues the newest records belong to, for readers that many consumers wait at."""

from __future__ import annotations

from typing import Final

import numpy as np

from storage.kernels.columns import STOP_END, new_rows
from storage.view.log.commit_log import CommitLogView
from storage.view.queues.units import UnitBuilder

FEW_BYTES: Final = 64 << 10  # of the log: more is not looked at record by record
_ROWS_MAX: Final = 1_024

Queue = tuple[str, int]  # topic, queue id


class ArrivedQueues:
    """Looks at records as they become visible. Looks are made by one thread at a time."""

    def __init__(self, log: CommitLogView) -> None:
        self.position = log.end_offset
        """Commit offset up to which was looked."""
        self._log = log
        self._rows = new_rows(_ROWS_MAX)
        self._builder = UnitBuilder(_ROWS_MAX)

    def look(self, end_offset: int) -> frozenset[Queue] | None:
        """Return the queues of the records from ``position`` to ``end_offset``, which becomes ``position``.

        None if that does not say it: there is much, or not only plain whole records. Then any queue may
        have changed.
        """
        begin, self.position = self.position, end_offset
        if begin == end_offset:
            return frozenset()
        if not 0 < end_offset - begin <= FEW_BYTES:
            return None
        found = self._log.bytes_at(begin, end_offset - begin)
        if found is None:
            return None
        data = np.frombuffer(found, np.uint8)
        scanned = self._builder.scan(data, self._rows, begin)
        if scanned.stop != STOP_END or not scanned.is_plain or scanned.next_position != len(data):
            return None
        return frozenset(
            (found[position : position + length].tobytes().decode("ascii"), queue_id)
            for position, length, queue_id, _, _, _ in scanned.runs
        )
