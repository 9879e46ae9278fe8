"""The rows of one queue of a group, in a table that grows and shrinks."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from storage.format.leases.journal import COUNT
from storage.kernels.leases import columns, replay
from storage.kernels.leases import rows as kernels

ROWS_MIN: Final = 64
_SMALL: Final = 512  # moving so few together each time costs more than their memory
_DOUBLED_BELOW: Final = 1 << 16

Longs = npt.NDArray[np.int64]


class LeaseRows:
    """Rows, ``minima`` and ``bounds`` as ``storage.kernels.leases.columns`` describes them."""

    __slots__ = ("bounds", "minima", "rows")

    def __init__(self, next_offset: int = 0, *, is_orderly: bool = False) -> None:
        self.bounds: Longs = np.zeros(columns.BOUND_COUNT, np.int64)
        self.bounds[columns.COMMITTED] = -1
        self.rows: Longs
        self.minima: Longs
        self._begin(next_offset, is_orderly=is_orderly)

    def _begin(self, next_offset: int, *, is_orderly: bool) -> None:
        committed = self.committed_offset
        self.bounds[:] = 0
        self.bounds[columns.NEAREST_MS] = columns.NEVER
        self.bounds[columns.NEXT_OFFSET] = next_offset
        self.bounds[columns.COMMITTED] = committed
        self._have(ROWS_MIN, _column_count(is_orderly=is_orderly))

    def keep_bounds_in(self, bounds: Longs) -> None:
        """Keep ``bounds`` in a line of a table from now on."""
        bounds[:] = self.bounds
        self.bounds = bounds

    def _have(self, capacity: int, column_count: int) -> None:
        self.rows = np.zeros((capacity, column_count), np.int64)
        self.minima = np.full((capacity >> columns.BLOCK_BITS) + 1, columns.NEVER, np.int64)

    @property
    def is_orderly(self) -> bool:
        """Whether there are message groups."""
        return bool(self.rows.shape[1] > columns.MESSAGE_GROUP)

    @property
    def live(self) -> Longs:
        """The rows from the first that is not done on, with those done between them."""
        head, tail = int(self.bounds[columns.HEAD]), int(self.bounds[columns.TAIL])
        return self.rows[head:tail]

    @property
    def live_count(self) -> int:
        """How many messages are not acknowledged of those that were handed out."""
        return int(self.bounds[columns.LIVE])

    @property
    def blocked_count(self) -> int:
        """How many wait for their message group."""
        return int(self.bounds[columns.BLOCKED_COUNT])

    @property
    def next_offset(self) -> int:
        """Nothing from here on was handed out."""
        return int(self.bounds[columns.NEXT_OFFSET])

    @next_offset.setter
    def next_offset(self, queue_offset: int) -> None:
        self.bounds[columns.NEXT_OFFSET] = queue_offset

    @property
    def committed_offset(self) -> int:
        """What consumerOffset.json was last given, -1 for nothing."""
        return int(self.bounds[columns.COMMITTED])

    @property
    def group_offset(self) -> int:
        """Everything before it is acknowledged."""
        if not self.bounds[columns.LIVE]:
            return self.next_offset
        return int(self.rows[self.bounds[columns.HEAD], columns.OFFSET])

    @property
    def nearest_ms(self) -> int:
        """No row is due before; it may be too early."""
        return int(self.bounds[columns.NEAREST_MS])

    def make_room(self, count: int) -> None:
        """See to it that so many rows can be added."""
        capacity = len(self.rows)
        if int(self.bounds[columns.TAIL]) + count <= capacity:
            return
        needed = self.live_count + count
        if needed > capacity * 3 // 4 or capacity < _SMALL:
            capacity = max(needed, capacity * 2 if capacity < _DOUBLED_BELOW else capacity * 5 // 4)
        elif needed < capacity // 8:
            capacity = max(ROWS_MIN, needed * 2)
        self._move(capacity, self.rows.shape[1])

    def _move(self, capacity: int, column_count: int) -> None:
        before = self.rows
        if (capacity, column_count) != before.shape:
            self._have(capacity, column_count)
        moved = int(kernels.move_live(before, self.bounds, self.rows))
        self.bounds[columns.HEAD], self.bounds[columns.TAIL] = 0, moved
        self.link_groups()
        kernels.settle_times(self.rows, self.minima, self.bounds)

    def link_groups(self) -> None:
        """Link the rows of message groups again, after some were moved or the last ones taken away."""
        if self.is_orderly:
            kernels.link_groups(self.rows, self.bounds)

    def set_orderly(self, *, is_orderly: bool, now_ms: int) -> None:
        """Have message groups or not; rows that there are have none, and are free."""
        if is_orderly == self.is_orderly:
            return
        if not is_orderly:
            self._free_all(now_ms)
        self._move(len(self.rows), _column_count(is_orderly=is_orderly))

    def _free_all(self, now_ms: int) -> None:
        live = self.live
        blocked = (live[:, columns.STATE] >> columns.STATE_BITS) & 0xFF == columns.BLOCKED
        live[blocked, columns.STATE] += (columns.LEASED - columns.BLOCKED) << columns.STATE_BITS
        live[blocked, columns.VISIBLE_AT] = now_ms

    def clear(self, next_offset: int) -> None:
        """Forget all rows, and go on at a queue offset."""
        self._begin(next_offset, is_orderly=self.is_orderly)

    def apply(self, events: Longs, begin: int, end: int) -> tuple[int, bool]:
        """Apply events up to ``end``, or to the first that is not of the same queue; ``settle`` follows.

        Returns the number of the first that was not applied, and whether it is an impossible one.
        """
        while True:
            applied, problem = replay.apply_events(
                self.rows, self.minima, self.bounds, events, begin, end
            )
            begin = int(applied)
            if problem != replay.NO_ROOM:
                return begin, bool(problem == replay.IMPOSSIBLE)
            self.make_room(int(events[begin, COUNT]))

    def settle(self, now_ms: int) -> None:
        """Work out what events do not say: who is blocked, and when something is due."""
        if self.is_orderly:
            replay.settle_blocked(self.rows, self.bounds, now_ms)
        kernels.settle_times(self.rows, self.minima, self.bounds)

    def find(self, queue_offsets: Longs) -> Longs:
        """Return the indexes of live rows by queue offset, -1 where there is none."""
        indexes = np.empty(len(queue_offsets), np.int64)
        kernels.find_rows(self.rows, self.bounds, queue_offsets, indexes)
        return indexes

    def owned_by(self, owner: int) -> Longs:
        """Return the indexes of rows whose lease an owner renews."""
        states = self.live[:, columns.STATE] >> columns.STATE_BITS
        owned: Longs = np.flatnonzero(states == ((owner + 1) << 8 | columns.LEASED))
        owned += int(self.bounds[columns.HEAD])
        return owned


def _column_count(*, is_orderly: bool) -> int:
    return columns.ORDERLY_COLUMNS if is_orderly else columns.PLAIN_COLUMNS
