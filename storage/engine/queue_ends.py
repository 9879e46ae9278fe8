"""Where queues end: the queue offsets that the next records get, and what was appended to each since the start."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeGuard

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from storage.log.batches import QueueKey
    from storage.queues.queue_table import QueueTable
    from storage.tables.topic_table import TopicTable

MET_AT_ONCE: Final = 256  # queues, under the lock


class Places(NamedTuple):
    """Where the ends of a batch's queues are kept, as long as no topic is deleted."""

    deletion_count: int
    indices: npt.NDArray[np.int64]


class QueueEnds:
    """Ends of queues that were met since the start; used under the append lock but for ``places_of``."""

    def __init__(self, queues: QueueTable, topics: TopicTable, lock: threading.Lock) -> None:
        self._queues = queues
        self._topics = topics
        self._lock = lock
        self._place_of: dict[QueueKey, int] = {}
        self._next_offsets = array("q")
        self._first_offsets = array("q")  # where each ended when it was met
        self._bytes = array("q")  # appended since
        self._free_places: list[int] = []
        self._deletion_count = 0  # of topics since the start

    def of(self, key: QueueKey) -> int:
        """Return a queue's next offset."""
        place = self._place_of.get(key)
        if place is not None:
            return self._next_offsets[place]
        # Nothing of this queue was appended since recovery, so what is on disk is all of it.
        return self._queues.next_offset(key[0].decode(), key[1])

    def of_all(self, keys: Sequence[QueueKey], places: Places | None) -> npt.NDArray[np.int64]:
        """Return each queue's next offset: of queues with ``places`` all at once."""
        if self._are_good(places):
            return self._array()[places.indices]
        return np.array(list(map(self.of, keys)), np.int64)

    def places_of(self, keys: Sequence[QueueKey]) -> Places | None:
        """Return where the ends of very many queues are kept; called without the lock.

        Queues that were not met are looked for on disk. None if a topic is not there, or was deleted meanwhile.
        """
        # A topic that is there after the count was read, and none deleted until the lock is held: what was found on
        # disk is of the topic that has this name now.
        deletion_count = self._deletion_count
        unmet = [key for key in keys if key not in self._place_of]
        for begin in range(0, len(unmet), MET_AT_ONCE):
            some = unmet[begin : begin + MET_AT_ONCE]
            if any(key[0].decode() not in self._topics for key in some):
                return None
            ends = [self._queues.next_offset(key[0].decode(), key[1]) for key in some]
            with self._lock:
                if deletion_count != self._deletion_count:
                    return None
                for key, end in zip(some, ends, strict=True):
                    if key not in self._place_of:
                        self.move(key, end, end, 0)
        places = list(map(self._place_of.get, keys))
        if None in places:  # of a topic that was deleted since
            return None
        return Places(deletion_count, np.array(places, np.int64))

    def move(self, key: QueueKey, first: int, next_offset: int, size: int) -> None:
        """Take in that ``size`` bytes of records were appended at the queue offsets ``[first, next_offset)``."""
        place = self._place_of.get(key)
        if place is not None:
            self._next_offsets[place] = next_offset
            self._bytes[place] += size
        elif self._free_places:
            place = self._free_places.pop()
            self._next_offsets[place] = next_offset
            self._first_offsets[place] = first
            self._bytes[place] = size
            self._place_of[key] = place
        else:
            place = len(self._next_offsets)
            self._next_offsets.append(next_offset)
            self._first_offsets.append(first)
            self._bytes.append(size)
            self._place_of[key] = place

    def move_all(
        self,
        keys: Sequence[QueueKey],
        firsts: npt.NDArray[np.int64],
        next_offsets: npt.NDArray[np.int64],
        sizes: Sequence[int],
        places: Places | None,
    ) -> None:
        """Do the same for each queue of a batch, ``sizes`` being bytes."""
        if self._are_good(places):
            self._array()[places.indices] = next_offsets
            np.frombuffer(self._bytes, np.int64)[places.indices] += sizes
            return
        moves = zip(keys, firsts.tolist(), next_offsets.tolist(), sizes, strict=True)
        for key, first, next_offset, size in moves:
            self.move(key, first, next_offset, size)

    def appended(self) -> dict[bytes, tuple[int, int]]:
        """Return by topic how many records and bytes were appended since the start; from any thread, without the lock.

        A queue that is just being met may be missing.
        """
        found: dict[bytes, tuple[int, int]] = {}
        places = list(self._place_of.items())
        next_offsets, firsts, sizes = self._next_offsets[:], self._first_offsets[:], self._bytes[:]
        for (topic, _), place in places:
            if place < len(sizes):
                count, size = found.get(topic, (0, 0))
                found[topic] = (
                    count + next_offsets[place] - firsts[place], size + sizes[place],
                )  # fmt: skip
        return found

    def appended_count(self) -> int:
        """Return how many records were appended since the start, from any thread; a deleted topic's may be left out."""
        next_offsets, firsts = self._next_offsets[:], self._first_offsets[:]
        count = min(len(next_offsets), len(firsts))  # a queue is just being met
        return int(np.sum(next_offsets[:count]) - np.sum(firsts[:count])) if count else 0

    def forget_topic(self, name: str) -> None:
        """Forget the ends of a deleted topic's queues."""
        self._deletion_count += 1
        topic = name.encode()
        for key in [key for key in self._place_of if key[0] == topic]:
            self._free_places.append(self._place_of.pop(key))

    def _are_good(self, places: Places | None) -> TypeGuard[Places]:
        return places is not None and places.deletion_count == self._deletion_count

    def _array(self) -> npt.NDArray[np.int64]:
        """Return the ends as an array, to be let go before a queue is met: an ``array`` in use does not grow."""
        return np.frombuffer(self._next_offsets, np.int64)
