"""The queues whose messages are leased: what is read of a store, and what is kept of a group's progress."""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueNotFound, TopicNotFound
from storage.format.names import RETRY_PREFIX
from storage.format.store_time import NO_TIME
from storage.reader import StoreReader
from storage.view.queues.arrived import ArrivedQueues, Queue
from storage.view.queues.records import RecordsAt, records_at

_LOOKS_KEPT: Final = 256


class Place(NamedTuple):
    """Where one record of a queue lies, and when it was stored: another record is elsewhere, or later."""

    commit_offset: int
    store_timestamp_ms: int


NOWHERE: Final = Place(-1, NO_TIME)


def retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Return the names under which a broker keeps what a group is to get again of a topic."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


class ArrivedMessages:
    """Which queues got messages of late, for groups that share topics of many queues.

    It looks at the log when it is asked, and keeps the last looks. Safe to use from several threads.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._guard = threading.Lock()
        self._arrived: ArrivedQueues | None = None
        self._looks: deque[frozenset[Queue] | None] = deque(maxlen=_LOOKS_KEPT)
        self._look_count = 0

    def since(self, look: int) -> tuple[int, frozenset[Queue] | None]:
        """Return the number of the latest look, and the queues that got messages after look number ``look``.

        None instead of queues where it may be any: much was stored, or that look is not kept.
        """
        with self._guard:
            if self._arrived is None:
                self._arrived = ArrivedQueues(self._reader.log)
            end_offset = self._reader.visible_offset
            if end_offset != self._arrived.position:
                self._looks.append(self._arrived.look(end_offset))
                self._look_count += 1
            missed = self._look_count - look
            if missed > len(self._looks):
                return self._look_count, None
            found: set[Queue] = set()
            for number in range(len(self._looks) - missed, len(self._looks)):
                queues = self._looks[number]
                if queues is None:
                    return self._look_count, None
                found |= queues
            return self._look_count, frozenset(found)


class StoreQueues:
    """A store's queues as leases use them. Safe to use from several threads."""

    def __init__(self, reader: StoreReader) -> None:
        self.reader = reader
        self.offsets = reader.consumer_offsets
        self.arrived = ArrivedMessages(reader)

    def queue_ids(self, topic: str) -> tuple[int, ...]:
        """Return the queues of a topic that may be read. Raises TopicNotFound."""
        _ = self.reader.positions  # brings the topics up to what the writer has published
        if topic in self.reader.topics:
            return tuple(range(self.reader.topics.get(topic).read_queue_count))
        found = tuple(queue_id for name, queue_id in self.reader.queues_on_disk() if name == topic)
        if not found:
            raise TopicNotFound(topic)
        return found

    def records_at(
        self, topic: str, queue_id: int, queue_offsets: npt.NDArray[np.int64], *, max_bytes: int
    ) -> RecordsAt:
        """See ``storage.view.queues.records``."""
        _ = self.reader.visible_offset  # brings the views up to what the writer has published
        return records_at(
            self.reader.log, self.reader.queue_view(topic, queue_id), topic=topic,
            queue_id=queue_id, queue_offsets=queue_offsets, max_bytes=max_bytes,
        )  # fmt: skip

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the queue offsets of the oldest message kept and of the next one; 0, 0 of no queue."""
        try:
            high = self.reader.max_offset(topic, queue_id)
            low = self.reader.min_offset(topic, queue_id)
            return low, max(low, high)
        except (TopicNotFound, QueueNotFound):
            return 0, 0

    def place(self, topic: str, queue_id: int, queue_offset: int) -> Place:
        """Return where the record of a queue offset lies, as its unit says; NOWHERE if there is none."""
        _ = self.reader.visible_offset
        unit = self.reader.queue_view(topic, queue_id).unit(queue_offset)
        if unit.size <= 0:
            return NOWHERE
        return Place(unit.commit_offset, self.reader.log.record_time_ms(*unit[:2]))

    def place_before(self, topic: str, queue_id: int, queue_offset: int) -> Place:
        """Return where the record before a queue offset lies; NOWHERE if the queue does not have it."""
        low, high = self.bounds(topic, queue_id)
        if not low < queue_offset <= high:
            return NOWHERE
        return self.place(topic, queue_id, queue_offset - 1)
