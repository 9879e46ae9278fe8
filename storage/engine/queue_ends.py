"""Where queues end: the queue offsets that the next records get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Final, NamedTuple, cast

if TYPE_CHECKING:
    from storage.log.batches import QueueKey
    from storage.queues.queue_table import QueueTable
    from storage.tables.topics import TopicTable


class HeldOffsets(NamedTuple):
    """Where queues end by their files, if nothing was appended to them and no topic deleted since."""

    deletion_count: int
    offsets: Mapping[QueueKey, int]


NOTHING_HELD: Final = HeldOffsets(-1, {})


class QueueEnds:
    """Ends of the queues that were appended to since the start; used under the append lock but for ``look_at``."""

    def __init__(self, queues: QueueTable, topics: TopicTable) -> None:
        self._queues = queues
        self._topics = topics
        self._next_offsets: dict[QueueKey, int] = {}
        self._deletion_count = 0  # of topics since the start

    def of(self, key: QueueKey) -> int:
        """Return a queue's next offset."""
        offset = self._next_offsets.get(key)
        if offset is None:
            # Nothing of this queue was appended since recovery, so what is on disk is all of it.
            offset = self._queues.next_offset(key[0].decode(), key[1])
        return offset

    def of_all(self, keys: Sequence[QueueKey], held: HeldOffsets) -> list[int]:
        """Return each queue's next offset, which takes as long as a look at a dictionary."""
        if held.deletion_count != self._deletion_count:
            held = NOTHING_HELD
        known = list(map(self._next_offsets.get, keys))
        if None not in known:
            return cast("list[int]", known)
        offsets = held.offsets
        return [
            first if first is not None else offsets[key] if key in offsets else self.of(key)
            for key, first in zip(keys, known, strict=True)
        ]

    def look_at(self, keys: Sequence[QueueKey]) -> HeldOffsets:
        """Find the ends of queues that were not met, so that nobody waits for that under the lock."""
        deletion_count = self._deletion_count
        offsets = {
            key: self._queues.next_offset(key[0].decode(), key[1])
            for key in keys
            if key not in self._next_offsets and key[0].decode() in self._topics
        }
        return HeldOffsets(deletion_count, offsets)

    def move(self, key: QueueKey, offset: int) -> None:
        """Take in a queue's next offset."""
        self._next_offsets[key] = offset

    def move_all(
        self, keys: Sequence[QueueKey], firsts: Sequence[int], sizes: Sequence[int]
    ) -> None:
        """Take in that so many records were appended from ``firsts`` on."""
        self._next_offsets.update(zip(keys, map(add, firsts, sizes), strict=True))

    def forget_topic(self, name: str) -> None:
        """Forget the ends of a deleted topic's queues."""
        self._deletion_count += 1
        topic = name.encode()
        for key in [key for key in self._next_offsets if key[0] == topic]:
            del self._next_offsets[key]
