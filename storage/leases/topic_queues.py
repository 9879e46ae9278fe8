"""The queues of a group in a topic: which of them have something to hand out, and whose turn it is.

What the rows of all queues say in ``bounds`` stands in one table, so that a topic may have thousands of them.
Which have new messages is not looked up in each: a queue that was found at its end is left alone until the
log says that it got messages, and is looked at once a second in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.kernels.leases import columns
from storage.leases.arrived_messages import ArrivedMessages
from storage.leases.leased_queue import LeasedQueue

Longs = npt.NDArray[np.int64]

FEW: Final = 1
"""So many are all looked at."""
_LOOK_AT_ALL_MS: Final = 1_000
_KIND_BITS: Final = 32


class TopicQueues:
    """Used under the lock of the group's topic, but for ``nearest_ms``, ``nearest_ms_of`` and ``live_count``."""

    def __init__(self, arrived: ArrivedMessages) -> None:
        self.all: list[LeasedQueue] = []
        self._arrived = arrived
        self._bounds: Longs = np.empty((0, columns.BOUND_COUNT), np.int64)
        self._by_name: dict[int, LeasedQueue] = {}
        self._numbers: dict[tuple[str, int], int] = {}
        self._turn = 0
        self._look = 0  # the last one whose arrivals are in ``_unread``
        self._unread: set[int] = set()  # numbers of queues that may have new messages
        self._looked_at_all_ms = 0

    def set(self, queues: Iterable[LeasedQueue]) -> None:
        """Have these queues and no others."""
        self.all = []
        self._by_name, self._numbers = {}, {}
        self._bounds = np.empty((0, columns.BOUND_COUNT), np.int64)
        for queue in queues:
            self.add(queue)
        self.expect_any()

    def add(self, queue: LeasedQueue) -> None:
        """Have one more queue."""
        number = len(self.all)
        if number == len(self._bounds):
            bounds = np.zeros((max(4, 2 * number), columns.BOUND_COUNT), np.int64)
            bounds[:, columns.NEAREST_MS] = columns.NEVER
            for line, each in zip(bounds, self.all, strict=False):
                each.rows.keep_bounds_in(line)
            self._bounds = bounds
        queue.rows.keep_bounds_in(self._bounds[number])
        self.all.append(queue)
        self._by_name[_name(queue.kind, queue.name.queue_id)] = queue
        self._numbers[queue.name.source, queue.name.queue_id] = number

    @property
    def nearest_ms(self) -> int:
        """Nothing that was handed out is visible again before."""
        bounds = self._bounds
        return int(bounds[:, columns.NEAREST_MS].min()) if len(bounds) else columns.NEVER

    def nearest_ms_of(self, queue_ids: Collection[int]) -> int:
        """As ``nearest_ms``, of some queues and those of the retry topics."""
        found = (
            queue.rows.nearest_ms
            for queue in list(self.all)
            if queue.kind or queue.name.queue_id in queue_ids
        )
        return min(found, default=columns.NEVER)

    @property
    def live_count(self) -> int:
        """How many messages are handed out and not acknowledged."""
        return int(self._bounds[:, columns.LIVE].sum())

    def named(self, opened: Longs) -> list[LeasedQueue]:
        """Return the queues that opened handles name, of those that there are."""
        names = opened[:, columns.HANDLE_KIND] << _KIND_BITS | opened[:, columns.HANDLE_QUEUE_ID]
        found = (self._by_name.get(name) for name in sorted(set(names.tolist())))
        return [queue for queue in found if queue is not None]

    # ---- handing out

    def take_turn(self) -> None:
        """Let another queue be the first one."""
        self._turn += 1

    def due(self, queue_ids: Sequence[int], now_ms: int) -> list[LeasedQueue]:
        """Return the queues of which something that was handed out may be visible again, in turn."""
        nearest = self._bounds[: len(self.all), columns.NEAREST_MS]
        return self._in_turn(np.flatnonzero(nearest <= now_ms).tolist(), queue_ids)

    def unread(self, queue_ids: Sequence[int], now_ms: int) -> list[LeasedQueue]:
        """Return the queues that may have new messages, in turn."""
        if len(self.all) <= FEW:
            return self._in_turn(range(len(self.all)), queue_ids)
        self._look, queues = self._arrived.since(self._look)
        if queues is None or not 0 <= now_ms - self._looked_at_all_ms < _LOOK_AT_ALL_MS:
            self._looked_at_all_ms = now_ms
            self._unread = set(range(len(self.all)))
        else:
            self._unread.update(self._numbers[each] for each in queues if each in self._numbers)
        return self._in_turn(sorted(self._unread), queue_ids)

    def is_read(self, queue: LeasedQueue) -> None:
        """Note that a queue was found at its end since ``unread`` was asked."""
        self._unread.discard(self._numbers[queue.name.source, queue.name.queue_id])

    def expect_any(self) -> None:
        """Have all queues looked at the next time."""
        self._unread = set(range(len(self.all)))
        self._looked_at_all_ms = 0

    def _in_turn(self, numbers: Sequence[int], queue_ids: Sequence[int]) -> list[LeasedQueue]:
        if not numbers:
            return []
        first = self._turn % len(self.all)
        queues = [self.all[number] for number in numbers if number >= first]
        queues += [self.all[number] for number in numbers if number < first]
        if queue_ids:
            asked = frozenset(queue_ids)
            queues = [each for each in queues if each.kind or each.name.queue_id in asked]
        return queues


def _name(kind: int, queue_id: int) -> int:
    return kind << _KIND_BITS | queue_id
