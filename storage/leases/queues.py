"""The queues whose messages are leased: what is read of a store, and what is kept of a group's progress."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from storage.errors import QueueNotFound, TopicNotFound
from storage.format.names import RETRY_PREFIX
from storage.format.store_time import NO_TIME
from storage.leases.arrived_messages import ArrivedMessages
from storage.message import PullResult
from storage.reader import StoreReader
from storage.view.records_at import RecordsAt, records_at


class Place(NamedTuple):
    """Where one record of a queue lies, and when it was stored: another record is elsewhere, or later."""

    commit_offset: int
    store_timestamp_ms: int


NOWHERE: Final = Place(-1, NO_TIME)


def retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Return the names under which a broker keeps what a group is to get again of a topic."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"


class StoreQueues:
    """A store's queues as leases use them. Safe to use from several threads."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self.offsets = reader.consumer_offsets
        self.arrived = ArrivedMessages(reader)

    def tables_state(self) -> tuple[int, int] | None:
        """See ``Visibility.tables_state``."""
        return self._reader.tables_state()

    def has_topic(self, topic: str) -> bool:
        """Return whether the topic table has a topic."""
        return topic in self._reader.topics

    def queue_ids(self, topic: str) -> tuple[int, ...]:
        """Return the queues of a topic that may be read. Raises TopicNotFound."""
        _ = self._reader.positions  # brings the topics up to what the writer has published
        if topic in self._reader.topics:
            return tuple(range(self._reader.topics.get(topic).read_queue_count))
        found = tuple(queue_id for name, queue_id in self._reader.queues_on_disk() if name == topic)
        if not found:
            raise TopicNotFound(topic)
        return found

    def incarnation_of(self, topic: str) -> int:
        """Return a number that is another one where a topic was deleted and created again."""
        return self._reader.incarnation_of(topic)

    def pull(
        self, topic: str, queue_id: int, queue_offset: int, *, max_messages: int, max_bytes: int,
        tag_expression: str,
    ) -> PullResult:  # fmt: skip
        """See ``StoreReader.pull``."""
        return self._reader.pull(
            topic, queue_id, queue_offset=queue_offset, max_messages=max_messages,
            max_bytes=max_bytes, tag_expression=tag_expression,
        )  # fmt: skip

    def records_at(
        self, topic: str, queue_id: int, queue_offsets: npt.NDArray[np.int64], *, max_bytes: int
    ) -> RecordsAt:
        """See ``storage.view.records_at``."""
        _ = self._reader.visible_offset  # brings the views up to what the writer has published
        return records_at(
            self._reader.log, self._reader.queue_view(topic, queue_id), topic=topic,
            queue_id=queue_id, queue_offsets=queue_offsets, max_bytes=max_bytes,
        )  # fmt: skip

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the queue offsets of the oldest message kept and of the next one; 0, 0 of no queue."""
        try:
            high = self._reader.max_offset(topic, queue_id)
            low = self._reader.min_offset(topic, queue_id)
            return low, max(low, high)
        except (TopicNotFound, QueueNotFound):
            return 0, 0

    def place(self, topic: str, queue_id: int, queue_offset: int) -> Place:
        """Return where the record of a queue offset lies, as its unit says; NOWHERE if there is none."""
        _ = self._reader.visible_offset
        unit = self._reader.queue_view(topic, queue_id).place(queue_offset)
        if unit is None or unit[1] <= 0:
            return NOWHERE
        return Place(unit[0], self._reader.log.record_time_ms(*unit))

    def place_before(self, topic: str, queue_id: int, queue_offset: int) -> Place:
        """Return where the record before a queue offset lies; NOWHERE if the queue does not have it."""
        low, high = self.bounds(topic, queue_id)
        if not low < queue_offset <= high:
            return NOWHERE
        return self.place(topic, queue_id, queue_offset - 1)

    def first_after(self, topic: str, queue_id: int, time_ms: int) -> int:
        """Return the first queue offset of what was stored after a time; the queue's end if nothing was."""
        return self._reader.offset_by_time(topic, queue_id, timestamp_ms=time_ms + 1)

    def shows_all(self) -> bool:
        """Return whether all is shown that there is: no recovery of the writer can bring more."""
        return self._reader.shows_all()

    def begin_of(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in consumerOffset.json, None if it has none."""
        return self._reader.committed_offset(group, topic, queue_id)

    def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the group's offset in consumerOffset.json as it stands there."""
        return self.offsets.fetch(group, topic, queue_id)
