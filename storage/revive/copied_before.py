"""Copies that a retry topic has already: a stop can take the acknowledgements behind them off the log's end."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from storage.format.properties import FIRST_POP_TIME, UNIQ_KEY
from storage.format.record import decode_record
from storage.kernels.columns import POSITION

if TYPE_CHECKING:
    from storage.engine.parked_queue import ParkedQueue, ParkedRecords
    from storage.format.record import Record

ROWS_MAX: Final = 2_048  # read at once
NOT_COPIED: Final = -1


class _Identity(NamedTuple):
    """What a message and its copy have alike; ``times`` is how often it came again before the copy."""

    unique_key: str
    born_timestamp_ms: int
    body_crc: int
    times: int

    @classmethod
    def of(cls, record: Record, times: int) -> _Identity:
        unique_key = record.properties.get(UNIQ_KEY, "")
        return cls(unique_key, record.born_timestamp_ms, record.body_crc, times)


class CopiesBefore:
    """Copies in the queue of a retry topic, as it is now; each stands for one message."""

    def __init__(self, queue: ParkedQueue, after_commit_offset: int, *, bytes_max: int) -> None:
        """Find those that lie in the log after a commit offset."""
        self._copies: dict[_Identity, list[int]] = defaultdict(list)
        self._taken: dict[tuple[str, int, int], int] = {}
        _, end = queue.bounds()
        at = queue.first_offset_at(after_commit_offset)
        while at < end:
            wanted = np.arange(at, min(end, at + ROWS_MAX))
            records = queue.records(wanted, bytes_max=bytes_max, room=0)
            self._add(records)
            at += max(records.looked_at, 1)

    def _add(self, records: ParkedRecords) -> None:
        for position in records.rows[:, POSITION].tolist():
            copy = decode_record(records.data.data, position)
            if FIRST_POP_TIME in copy.properties:
                identity = _Identity.of(copy, copy.reconsume_times - 1)
                self._copies[identity].append(copy.commit_offset)

    def copy_of(self, topic: str, queue_id: int, records: ParkedRecords, place: int) -> int:
        """Return the commit offset of the last copy of the message at a place, NOT_COPIED without one.

        Asked again it says the same; no other message has that copy.
        """
        if not self._copies:
            return NOT_COPIED
        message = topic, queue_id, int(records.queue_offsets[place])
        if message not in self._taken:
            record = decode_record(records.data.data, int(records.rows[place, POSITION]))
            copies = self._copies.get(_Identity.of(record, record.reconsume_times))
            self._taken[message] = copies.pop() if copies else NOT_COPIED
        return self._taken[message]
