"""Messages with a delay level: queues of the schedule topic, whose units say when each is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from storage.engine.writer_view import WriterLogView, WriterQueueView
from storage.format.consume_entry import DELAY_LEVELS_MS, SCHEDULE_TOPIC
from storage.kernels.timers import DELIVERY_PAIRS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from storage.clock import Clock
    from storage.engine.engine import Engine
    from storage.timers.delivery import Delivery

ROWS_MAX: Final = 4_096  # delivered at once


class DelayLevels:
    """Delivers what is due of each level; used by one thread, counts by any.

    ``offsets`` has the next queue offset of each level.
    """

    def __init__(
        self, engine: Engine, log: WriterLogView, delivery: Delivery, clock: Clock, bytes_max: int
    ) -> None:
        self._engine = engine
        self._log = log
        self._delivery = delivery
        self._clock = clock
        self._bytes_max = bytes_max
        self._queues: dict[int, WriterQueueView] = {}
        self._dues_ms: dict[int, int] = {}  # when the next of a level is due, as far as known
        self.offsets: dict[int, int] = {}

    def resume(self, offsets: Mapping[int, int]) -> None:
        """Go on at these offsets."""
        self.offsets = dict(offsets)

    def pending_count(self) -> int:
        """Return how many messages wait."""
        return sum(
            max(self._engine.queues.next_offset(SCHEDULE_TOPIC, level - 1) - offset, 0)
            for level, offset in dict(self.offsets).items()
        )

    def next_due_ms(self) -> int | None:
        """Return when the next is due, as far as known."""
        return min(dict(self._dues_ms).values(), default=None)

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Yield from which topic, queue and queue offset on messages wait."""
        for level, offset in self.offsets.items():
            yield SCHEDULE_TOPIC, level - 1, offset

    def deliver(self) -> bool:
        """Deliver what is due; return whether there was anything."""
        moved = False
        for level, delay_ms in enumerate(DELAY_LEVELS_MS, 1):
            end = self._engine.queues.next_offset(SCHEDULE_TOPIC, level - 1)
            if self.offsets.get(level, 0) < end:
                moved |= self._deliver(level, delay_ms)
        return moved

    def _deliver(self, level: int, delay_ms: int) -> bool:
        queue = self._queues.get(level)
        if queue is None:
            queue = self._queues[level] = WriterQueueView(self._log, SCHEDULE_TOPIC, level - 1)
        self._dues_ms.pop(level, None)
        begin, end = queue.bounds()
        begin = max(self.offsets.get(level, 0), begin)
        if begin >= end:
            return False
        now_ms = self._clock.now_ms()
        dues_ms = queue.tag_codes(begin, min(end, begin + ROWS_MAX))
        # What waits longer than its level was stored before the clock was set back: due now, as with a broker.
        late = np.flatnonzero((dues_ms > now_ms) & (dues_ms <= now_ms + delay_ms))
        count = int(late[0]) if len(late) else len(dues_ms)
        if not count:
            self.offsets[level] = begin
            self._dues_ms[level] = int(dues_ms[0])
            return False
        records = queue.records(
            np.arange(begin, begin + count), bytes_max=self._bytes_max, room=DELIVERY_PAIRS_MAX
        )
        self._delivery.deliver(records, np.arange(len(records.rows)), now_ms=now_ms, is_timer=False)
        self.offsets[level] = begin + records.looked_at
        self._delivery.counts.damaged += len(records.damaged)
        return True

    def close(self) -> None:
        """Let go of files."""
        for queue in self._queues.values():
            queue.close()
